"""The layers of defaults of a composition, in their order. Each part has its own in its class: `presets.layers`."""

from __future__ import annotations

from gossamer.config.names import ALGORITHMS, ARCHITECTURES, family, load, name_of
from gossamer.config.probe import Probe
from gossamer.presets.layers import Layer, Preset, presets_of
from gossamer.presets.rules import no_convolutions, returns_of_games, whole_sequences
from gossamer.system.errors import UserError

_VECTORS = "small vectors: runs of minutes; one thread, because more would only wait for each other"
KINDS = (
    Layer("pictures: centred on their background", {"input": "background"}, kind="pixels"),
    Layer("as with vectors: returns normalised (not tuned)", {"normalize_returns": True}, kind="continuous pixels"),
    Layer(_VECTORS, {"steps": 200_000, "threads": 1}, kind="vector"),
    Layer(_VECTORS, {"steps": 200_000, "threads": 1}, kind="continuous"),
)
GAMES = Layer("several games: values in units of each one's returns", rules=(returns_of_games,), kind="games")
FITTED = ("a2c", "ppo", "appo", "vtrace")  # algorithms whose sizes follow the number of environments
UNFITTED = ("a3c",)  # it has more learners on more cores, and nothing is known of its rate with larger batches
PAPERS: tuple[Preset, ...] = ("paper", "accelerated")
_NO_PICTURES = "vectors: no convolutions"
LAST = (
    GAMES,
    Layer("with memory, minibatches are whole sequences", rules=(whole_sequences,)),
    *(Layer("too small for the networks of papers", {"network": "auto"}, preset=p, kind="tiny pixels") for p in PAPERS),
    *(Layer(_NO_PICTURES, {"input": "raw"}, (no_convolutions,), preset=p, kind="vector") for p in PAPERS),
    *(Layer(_NO_PICTURES, {"input": "raw"}, (no_convolutions,), preset=p, kind="continuous") for p in PAPERS),
)


def layers(architecture: type, algorithm: type, *, preset: str, seen: Probe) -> list[Layer]:
    """The layers of a composition. Later ones override earlier ones; rules come after the options of all layers:

    1. those of the kind of environment;
    2. the algorithm's, then the architecture's, as far as they do not name the other;
    3. those that the algorithm has beside this architecture, then those of the architecture beside this algorithm; the
       settings of a paper are of this kind;
    4. those of all compositions.

    Raises `UserError` if there is no such preset."""
    names = family_name(architecture, ARCHITECTURES), family_name(algorithm, ALGORITHMS)
    if preset == "paper":
        _check_paper(architecture, algorithm, *names)
    elif preset == "accelerated":
        _check_accelerated(*names)
    of_algorithm = [each for each in presets_of(algorithm) if each.applies(preset, seen.kinds, names[0])]
    of_architecture = [each for each in presets_of(architecture) if each.applies(preset, seen.kinds, names[1])]
    own = sorted([*of_algorithm, *of_architecture], key=lambda each: bool(each.beside))
    first, last = ([each for each in some if each.applies(preset, seen.kinds, "")] for some in (KINDS, LAST))
    return [*first, *own, *last]


def fits(architecture: type, algorithm: type, *, preset: str, seen: Probe) -> bool:
    """Whether `presets.fitting` has a rule for this composition: it is tuned on games of Atari, which threads step."""
    name = family_name(architecture, ARCHITECTURES)
    known = name in ARCHITECTURES and name not in UNFITTED and family_name(algorithm, ALGORITHMS) in FITTED
    return preset == "tuned" and seen.atari and known


def family_name(kind: type, known: dict[str, str]) -> str:
    """The name of a part, or of the one in `known` that it derives from."""
    return name_of(family(kind, known), known)


def paper_of(architecture: type) -> Layer | None:
    """The settings of an architecture's paper; `beside` has the algorithm. None if there are none."""
    return next((layer for layer in presets_of(architecture) if layer.preset == "paper"), None)


def accelerated_of(algorithm: type) -> list[Layer]:
    """The settings of an algorithm in the preset `accelerated`; `beside` has the architectures."""
    return [layer for layer in presets_of(algorithm) if layer.preset == "accelerated"]


def _check_paper(architecture: type, learner: type, name: str, algorithm: str) -> None:
    if any(layer.preset == "paper" and name in layer.beside for layer in presets_of(learner)):
        return  # the paper of the algorithm
    paper = paper_of(architecture)
    if paper is None:
        known = [each for each in ARCHITECTURES if paper_of(load("architecture", each, ARCHITECTURES))]
        raise UserError(f"--preset paper: not available for {name}; available for {', '.join(known)}")
    if algorithm not in paper.beside:
        only = ", ".join(paper.beside)
        raise UserError(f"--algorithm {algorithm}: {name.upper()}'s paper has only {only}; omit --preset paper")


def _check_accelerated(architecture: str, algorithm: str) -> None:
    known = {
        name: layer.beside for name in ALGORITHMS for layer in accelerated_of(load("--algorithm", name, ALGORITHMS))
    }
    if architecture not in known.get(algorithm, ()):
        available = "; ".join(f"{name} in {', '.join(beside)}" for name, beside in known.items())
        raise UserError(
            f"--preset accelerated: not available for {algorithm} in {architecture}; available for {available}"
        )
