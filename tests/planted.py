"""Faults of crawled corpora, planted into clean pairs: of every kind equally many, at random places, from a seed.

As a script it writes a corpus with faults in train, and dev and test as they are, from a corpus that `normalise` made:

    snakemake --profile config/profiles/default --config experiment=recommended -- normalised
    python tests/planted.py --corpus results/recommended/corpus --languages de en --share 0.3 --output planted
    snakemake --profile config/profiles/default --configfile tests/experiments/planted-noisy.yaml
    snakemake --profile config/profiles/default --configfile tests/experiments/planted-{noisy,cleaned}.yaml
"""

from __future__ import annotations

import argparse
import html
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

Pair = tuple[str, str]
CYRILLIC = str.maketrans(
    dict(zip("abdefgiklmnoprstuvz", "абдефгиклмнопрстувз", strict=True))
    | dict(zip("ABDEFGIKLMNOPRSTUVZ", "АБДЕФГИКЛМНОПРСТУВЗ", strict=True))
)
FRENCH = (
    "Je ne sais pas ce que vous voulez dire par là.",
    "Il est arrivé hier soir avec toute sa famille.",
    "Nous avons décidé de partir avant la fin de la semaine.",
    "Cette maison appartient à mes parents depuis longtemps.",
    "Les enfants jouent dans le jardin derrière la maison.",
    "Elle travaille dans une petite ville près de la mer.",
    "Veuillez accepter les conditions pour continuer votre achat.",
    "Aucune de ces réponses ne me semble vraiment correcte.",
)
Fault = Callable[[Pair, random.Random], Pair]


def long(pair: Pair, _draw: random.Random) -> Pair:
    """A paragraph."""
    times = 101 // min(len(side.split()) for side in pair) + 1
    return " ".join([pair[0]] * times), " ".join([pair[1]] * times)


def cut(pair: Pair, _draw: random.Random) -> Pair:
    """One side is cut after its first word, the other is twice as long as it was."""
    return f"{pair[0]} {pair[0]}", pair[1].split()[0]


def glued(pair: Pair, _draw: random.Random) -> Pair:
    """White space is lost."""
    source = pair[0].replace(" ", "")
    return source + "und" * ((50 - len(source)) // 3 + 1) * (len(source) < 50), pair[1]


def symbols(_pair: Pair, draw: random.Random) -> Pair:
    """A row of a table."""
    row = " | ".join(f"{draw.randrange(10, 1000)}" for _ in range(5))
    return f"Nr. {row}", f"No. {row}"


def script(pair: Pair, _draw: random.Random) -> Pair:
    """The source in Cyrillic letters."""
    return pair[0].translate(CYRILLIC), pair[1]


def language(pair: Pair, draw: random.Random) -> Pair:
    """The sides are exchanged, or one is French."""
    return (pair[1], pair[0]) if draw.random() < 0.5 else (pair[0], draw.choice(FRENCH))


def copy(pair: Pair, draw: random.Random) -> Pair:
    """The source stands on both sides, half of the times with another end."""
    return pair[0], pair[0] if draw.random() < 0.5 else pair[0].rstrip(".?!") + " …"


def number(pair: Pair, draw: random.Random) -> Pair:
    """Different years."""
    year = draw.randrange(1900, 2000)
    return f"{pair[0]} ({year})", f"{pair[1]} ({year + draw.randrange(1, 50)})"


def address(pair: Pair, draw: random.Random) -> Pair:
    """An address on one side, or different ones."""
    target = pair[1] if draw.random() < 0.5 else f"{pair[1]} www.example.org/en"
    return f"{pair[0]} http://example.org/index", target


def garbled(pair: Pair, draw: random.Random) -> Pair:
    """UTF-8 that was read as Windows-1252, on a side that shows it, or else entities."""
    try:
        misread = pair[0].encode().decode("cp1252")
    except UnicodeDecodeError:
        misread = pair[0]
    if misread != pair[0] and draw.random() < 0.7:
        return misread, pair[1]
    return html.escape(f'{pair[0][:-1]} & "so"{pair[0][-1]}'), html.escape(f'{pair[1][:-1]} & "so"{pair[1][-1]}')


def invisible(pair: Pair, draw: random.Random) -> Pair:
    """Characters of no width inside of words, and a control character in place of a space."""
    index = draw.randrange(1, len(pair[0]))
    return pair[0][:index] + "\u200b" + pair[0][index:], pair[1].replace(" ", "\x07", 1)


def capitals(pair: Pair, _draw: random.Random) -> Pair:
    return pair[0].upper(), pair[1].upper()


def repeated(pair: Pair, _draw: random.Random) -> Pair:
    """The pair once more with other case and punctuation, right behind the first."""
    return pair[0].rstrip(".?!").lower(), pair[1].rstrip(".?!") + " !"


def misaligned(_pair: Pair, _draw: random.Random) -> Pair:
    raise NotImplementedError("it takes the target of another pair: see `plant`")


# Faults by the name of the filter that finds them; UNSEEN has those that no filter finds.
FAULTS: dict[str, Fault] = {
    "length": long,
    "ratio": cut,
    "longest_word": glued,
    "letters": symbols,
    "script": script,
    "language": language,
    "copies": copy,
    "numbers": number,
    "addresses": address,
    "garbled": garbled,
    "invisible": invisible,
    "capitals": capitals,
    "repeated": repeated,
}
UNSEEN: dict[str, Fault] = {"misaligned": misaligned}


def plant(pairs: list[Pair], kinds: list[str], share: float, seed: int) -> tuple[list[Pair], list[str | None]]:
    """Pairs of which `share` have a fault each, of `kinds` in turn, and the kind of each pair's fault, or None.

    A repetition replaces the pair behind the one that it repeats.
    """
    draw = random.Random(seed)
    rows = draw.sample(range(1, len(pairs)), round(share * len(pairs)))
    result, faults = list(pairs), [None] * len(pairs)
    for turn, row in enumerate(rows):
        faults[row] = kinds[turn % len(kinds)]
    for row in sorted(rows):
        kind = faults[row]
        if kind == "misaligned":
            result[row] = pairs[row][0], pairs[draw.randrange(len(pairs))][1]
        else:
            original = pairs[row - 1] if kind == "repeated" else pairs[row]
            if kind == "repeated" and faults[row - 1] is not None:
                # The repeated pair must be there unchanged: its own fault is removed.
                result[row - 1], faults[row - 1] = pairs[row - 1], None
            result[row] = FAULTS[kind](original, draw)
    return result, faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="folder with train, dev and test of both languages")
    parser.add_argument("--languages", nargs=2, required=True, metavar="CODE")
    parser.add_argument("--share", type=float, default=0.3, help="of the training pairs")
    parser.add_argument("--kinds", nargs="+", default=[*FAULTS, *UNSEEN], choices=[*FAULTS, *UNSEEN])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True, help="folder")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    texts = [
        (arguments.corpus / f"train.{code}").read_text(encoding="utf-8").splitlines() for code in arguments.languages
    ]
    pairs, faults = plant(list(zip(*texts, strict=True)), arguments.kinds, arguments.share, arguments.seed)
    for code, lines in zip(arguments.languages, zip(*pairs, strict=True), strict=True):
        (arguments.output / f"train.{code}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for split in ("dev", "test"):
            shutil.copyfile(arguments.corpus / f"{split}.{code}", arguments.output / f"{split}.{code}")
    print(f"{len(pairs):,} pairs:", ", ".join(f"{count:,} {kind}" for kind, count in Counter(faults).items()))


if __name__ == "__main__":
    main()
