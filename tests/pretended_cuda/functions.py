"""Functions that are intercepted before operators: devices' names, tensors of values, attention, autocast's casts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pretended_cuda.machine import CPU, machine
from pretended_cuda.tensors import DeviceTensor, tensors_in

# The largest second and third dimension of a grid.
GRID = 65535
FROM_VALUES = (torch.tensor, torch.as_tensor, torch.asarray)

# CUDA's policy, https://docs.pytorch.org/docs/stable/amp.html: functions that run in the narrow type, in float32, and
# in the widest type of their operands. Others run in the types that they get.
NARROW = {
    *("__matmul__", "__rmatmul__", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "conv1d"),
    *("conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "einsum", "gru_cell"),
    *("linalg_multi_dot", "linalg_vecdot", "linear", "lstm", "lstm_cell", "matmul", "mm", "mv", "prelu"),
    *("rnn_relu_cell", "rnn_tanh_cell", "scaled_dot_product_attention"),
}
FLOAT32 = {
    *("__pow__", "__rdiv__", "__rpow__", "__rtruediv__", "acos", "asin", "binary_cross_entropy_with_logits", "cdist"),
    *("cosh", "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "cumprod", "cumsum", "dist", "erfinv"),
    *("exp", "expm1", "group_norm", "hinge_embedding_loss", "kl_div", "l1_loss", "layer_norm", "log", "log10"),
    *("log1p", "log2", "log_softmax", "logsumexp", "margin_ranking_loss", "mse_loss", "multi_margin_loss"),
    *("multilabel_margin_loss", "nll_loss", "nll_loss2d", "norm", "pdist", "poisson_nll_loss", "pow", "prod"),
    *("reciprocal", "renorm", "rms_norm", "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss", "softmax", "softplus"),
    *("sum", "tan", "triplet_margin_loss"),
}
WIDEST = {
    *("addcdiv", "addcmul", "atan2", "bilinear", "cat", "cross", "dot", "grid_sampler", "index_put", "scatter_add"),
    *("stack", "tensordot", "vdot"),
}


class Calling(TorchFunctionMode):
    """Functions of Python, before autograd and operators."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.device:
            return function(*args, **kwargs)
        if torch.is_autocast_enabled("cuda"):
            args, kwargs = _cast(function, args, kwargs)
        if function in (torch.Tensor.to, torch.Tensor.cuda):
            return _moved(function, *args, **kwargs)
        args = tuple(map(_numbered, args))
        kwargs = {name: _numbered(value) for name, value in kwargs.items()}
        _check_generator(args, kwargs)
        elsewhere = torch.device(kwargs.get("device") or CPU) != CPU
        if function in FROM_VALUES and elsewhere and not isinstance(args[0], DeviceTensor):
            return _of_values(function, args, kwargs)
        if function is torch.Tensor.new_tensor and isinstance(args[0], DeviceTensor):
            defaults = {"device": args[0].device, "dtype": args[0].dtype}
            return _of_values(torch.tensor, args[1:], defaults | kwargs)
        if function is F.scaled_dot_product_attention and isinstance(args[0], DeviceTensor):
            return _attention(*args, **kwargs)
        return function(*args, **kwargs)


def _numbered(x):
    """A GPU's name as the device with its number: to ask which is the current one, C++ would need a driver."""
    device_type = x.type if isinstance(x, torch.device) else x.partition(":")[0] if isinstance(x, str) else None
    return machine.device(x) if device_type == "cuda" else x


def _check_generator(args, kwargs) -> None:
    """Raises RuntimeError for numbers that are drawn by the generator of another device."""
    generator = kwargs.get("generator")
    if generator is not None:
        device = kwargs.get("device") or next((x.device for x in args if isinstance(x, Tensor)), CPU)
        if generator.device != torch.device(device):
            raise RuntimeError(f"Expected a '{device}' generator device but found '{generator.device}'")


def _moved(function, tensor: Tensor, *arguments, dtype=None, device=None, other=None, **options) -> Tensor:
    """`Tensor.to` and `Tensor.cuda`; C++ does not see that our tensor is on its target already."""
    device = "cuda" if function is torch.Tensor.cuda and arguments in ((), (None,)) else device
    for argument in (*arguments, other):
        if isinstance(argument, Tensor):
            device, dtype = argument.device, argument.dtype
        elif isinstance(argument, torch.dtype):
            dtype = argument
        elif isinstance(argument, bool):
            options["non_blocking"] = argument
        elif argument is not None:
            device = argument
    if isinstance(tensor, DeviceTensor) and torch.device(device or "meta").type == "meta":
        device = tensor.device
    device = None if device is None or machine.device(device) == tensor.device else machine.device(device)
    if device is None and dtype in (None, tensor.dtype) and not options.get("copy"):
        return tensor
    options |= {} if device is None else {"device": device}
    return torch.Tensor.to(tensor, **options, dtype=dtype or tensor.dtype)


def _of_values(function, args, kwargs) -> Tensor:
    """A tensor of Python values, or of the CPU's, on a GPU: made on the CPU, and copied while the CPU waits."""
    device = machine.device(kwargs["device"])
    tensor = function(*args, **{**kwargs, "device": CPU})
    machine.copy(f"copy from cpu to {device}")
    machine.counts["copies to the device"] += 1
    return DeviceTensor(tensor.detach(), device).requires_grad_(tensor.requires_grad)


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **_):
    """Attention as one operator, as GPUs have it; batches and heads are dimensions of its grid (pytorch#142228)."""
    if max(query.shape[:2]) > GRID:
        raise RuntimeError("CUDA error: invalid argument")
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return fused(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]


def _cast(function, args, kwargs):
    """Arguments in the types that autocast gives them."""
    name = getattr(function, "__name__", "")
    operands = [x for x in tensors_in((*args, *kwargs.values())) if isinstance(x, DeviceTensor)]
    floating = [x for x in operands if x.is_floating_point() and x.dtype != torch.float64]
    if not floating:
        return args, kwargs
    if name in NARROW:
        dtype = torch.get_autocast_dtype("cuda")
        machine.narrowed.add(name)
    elif name in FLOAT32 or (name in WIDEST and any(x.dtype == torch.float32 for x in floating)):
        dtype = torch.float32
    else:
        return args, kwargs

    def cast(x):
        if isinstance(x, DeviceTensor) and x.is_floating_point() and x.dtype not in (dtype, torch.float64):
            return x.to(dtype)
        return type(x)([cast(element) for element in x]) if type(x) in (list, tuple) else x

    return tuple(map(cast, args)), {key: cast(value) for key, value in kwargs.items()}
