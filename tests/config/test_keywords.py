"""`gossamer.config.keywords` has the options of all parts with their types, for type checkers. To write it anew:

python tests/config/test_keywords.py"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

from gossamer.config import keywords
from gossamer.config.names import ALGORITHMS, ARCHITECTURES, OPTIMIZERS, load
from gossamer.config.resolve import COMMON
from gossamer.envs.options import AleOptions, AtariOptions, GamesOptions, GymOptions
from gossamer.system.options import Sizes, choices, declared, plain, types

FILE = Path(keywords.__file__)
NAMED: dict[str, list[type]] = {
    what: [load("", name, known) for name in known]
    for what, known in (("architectures", ARCHITECTURES), ("algorithms", ALGORITHMS), ("optimizers", OPTIMIZERS))
}
GROUPS: dict[str, list[type]] = {
    "run": [COMMON["run"]],
    "environment": [AtariOptions, AleOptions, GymOptions, GamesOptions],
    "architectures": NAMED["architectures"],
    "algorithms": NAMED["algorithms"],
    "network": [COMMON["network"]],
    "optimizers": [COMMON["optimization"], *NAMED["optimizers"]],
}
HEAD = '''"""Options as keywords of `train` and `bench`, for mypy; tests/config/test_keywords.py writes this file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict


class Keywords(TypedDict, total=False):
    """The composition determines which of them apply."""

'''


def written() -> str:
    """The module, with each option once."""
    lines, seen = list[str](), set[str]()
    for what, kinds in GROUPS.items():
        lines.append(f"    # {what}")
        for kind in kinds:
            new = {name: types(kind)[each.name] for name, each in declared(kind).items() if name not in seen}
            lines += [f"    {name}: {_title(plain(hint))}" for name, hint in new.items()]
            seen |= new.keys()
    return HEAD + "\n".join(lines) + "\n"


def _title(kind: Any) -> str:
    quoted = ", ".join(f'"{value}"' for value in choices(kind))
    if kind == Sizes:
        return "Sequence[int] | str"
    if quoted:
        return f"Literal[{quoted}]"
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")


def test_the_keywords_are_the_options_of_all_parts() -> None:
    assert FILE.read_text() == written(), "python tests/config/test_keywords.py writes it anew"


def test_one_name_has_one_type_wherever_it_is_an_option() -> None:
    kinds = [kind for group in GROUPS.values() for kind in group]
    for name, hint in get_type_hints(keywords.Keywords).items():
        of = {plain(types(kind)[declared(kind)[name].name]) for kind in kinds if name in declared(kind)}
        assert of == {Sizes if hint == Sequence[int] | str else hint}
        assert choices(hint) or hint in (int, float, str, bool, dict[str, Any], Sequence[int] | str)


if __name__ == "__main__":
    FILE.write_text(written())
