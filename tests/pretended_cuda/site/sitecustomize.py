"""Python imports this when it starts: where the environment asks for pretended GPUs, they come with torch."""

import importlib.util
import os
import sys


class AfterTorch:
    """A finder of torch that begins to pretend GPUs when torch has been imported."""

    def find_spec(self, name, *_):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        execute = spec.loader.exec_module

        def execute_and_begin(module):
            execute(module)
            import pretended_cuda

            pretended_cuda.begin()

        spec.loader.exec_module = execute_and_begin
        return spec


if "CONTINUUM_PRETENDED_GPUS" in os.environ:
    sys.meta_path.insert(0, AfterTorch())
