"""MIG geometry: the cases that any implementation must reach."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from apportion.core import grid
from apportion.core.catalog import Model
from apportion.core.placement import slice_search
from tests.builders.accelerators import A100, CATALOG, H100, model

LETTERS = {
    "a": "1g.5gb",
    "m": "1g.5gb+me",
    "b": "1g.10gb",
    "c": "2g.10gb",
    "d": "3g.20gb",
    "e": "4g.20gb",
    "f": "7g.40gb",
}
ON_H100 = {
    "a": "1g.10gb",
    "m": "1g.10gb+me",
    "b": "1g.20gb",
    "c": "2g.20gb",
    "d": "3g.40gb",
    "e": "4g.40gb",
    "f": "7g.80gb",
}
ON_H200 = {
    "a": "1g.18gb",
    "m": "1g.18gb+me",
    "b": "1g.35gb",
    "c": "2g.35gb",
    "d": "3g.71gb",
    "e": "4g.71gb",
    "f": "7g.141gb",
}
SETS = [
    "b m 5a",
    "b 6a",
    "c b m 3a",
    "c b 4a",
    "c 2b m a",
    "c 2b 2a",
    "c 3b",
    "d b m a",
    "d b 2a",
    "d m 3a",
    "d c b",
    "d c m a",
    "d c 2a",
    "d 2b",
    "d 2c",
    "d 4a",
    "e b m a",
    "e b 2a",
    "e c b",
    "e d",
    "e 2b",
    "f",
    "2b m 3a",
    "2b 4a",
    "2c b m a",
    "2c b 2a",
    "2c 2b",
    "2d",
    "3b m a",
    "3b 2a",
    "3c b",
    "4b",
]
MOST = {"a": 7, "m": 1, "b": 4, "c": 3, "d": 2, "e": 1, "f": 1}
MODELS = ((A100, LETTERS), (H100, ON_H100), ("NVIDIA H200", ON_H200))


def members(text: str, letters: dict[str, str]) -> list[str]:
    wants: list[str] = []
    for part in text.split():
        wants += [letters[part[-1]]] * int(part[:-1] or 1)
    return wants


def only(product: str, *names: str) -> Model:
    kept = tuple(profile for profile in model(product).profiles if profile.name in names)
    return msgspec.structs.replace(model(product), id=f"{product}-{'-'.join(names)}", profiles=kept)


@pytest.mark.parametrize(("product", "letters"), MODELS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("text", SETS)
def test_s04_each_of_the_32_sets_fits_on_one_gpu_in_every_order(
    text: str, product: str, letters: dict[str, str]
) -> None:
    cut = grid.of(model(product))
    wants = members(text, letters)
    for order in sorted(set(itertools.permutations(wants))):
        seats = slice_search.arrange([(cut, grid.EMPTY)], list(order), slice_search.first_place)
        assert seats is not None, order
        _assert_legal(cut, list(order), seats)


def _assert_legal(cut: grid.Grid, wants: list[str], seats: list[slice_search.Position]) -> None:
    taken = 0
    for profile, (_, start) in zip(wants, seats, strict=True):
        shape = cut.shape(profile)
        assert shape is not None
        assert start in shape.starts
        assert not taken & shape.mask(start), "slices overlap"
        taken |= shape.mask(start)


@pytest.mark.parametrize(("product", "letters"), MODELS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("letter", MOST)
def test_s04_the_most_of_one_profile_fits_and_one_more_does_not(
    letter: str, product: str, letters: dict[str, str]
) -> None:
    cut = grid.of(model(product))
    most = MOST[letter]
    assert slice_search.fits([(cut, grid.EMPTY)], [letters[letter]] * most)
    assert not slice_search.fits([(cut, grid.EMPTY)], [letters[letter]] * (most + 1))
    shape = cut.shape(letters[letter])
    assert shape is not None
    assert cut.room(grid.EMPTY, shape) == most


def maximal_layouts(cut: grid.Grid) -> set[frozenset[tuple[str, int]]]:
    found: set[frozenset[tuple[str, int]]] = set()
    seen: set[frozenset[tuple[str, int]]] = set()
    todo: list[tuple[int, frozenset[tuple[str, int]]]] = [(grid.EMPTY, frozenset())]
    while todo:
        state, layout = todo.pop()
        if layout in seen:
            continue
        seen.add(layout)
        more = [(shape, start) for shape in cut.ordered for start in cut.places(state, shape)]
        if not more:
            found.add(layout)
        todo += [(cut.put(state, shape, start), layout | {(shape.name, start)}) for shape, start in more]
    return found


def test_s04_an_a100_without_double_memory_and_media_has_19_maximal_layouts() -> None:
    cut = grid.of(only(A100, "7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.5gb"))
    assert len(maximal_layouts(cut)) == 19


def test_s04_an_a100_with_double_memory_has_191_masks_and_38_layouts() -> None:
    cut = grid.of(only(A100, "7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.10gb", "1g.5gb"))
    masks = {state & cut.full for state in cut.states} - {0}
    assert len(masks) == 191
    layouts = maximal_layouts(cut)
    assert len(layouts) == 78
    assert len({tuple(sorted(name for name, _ in layout)) for layout in layouts}) == 38


def test_s04_a_limit_per_gpu_holds_without_engines_to_count() -> None:
    """A model that somebody declares may say how many there are of a profile, and nothing about engines."""
    kept = tuple(msgspec.structs.replace(profile, engines={}) for profile in model(A100).profiles)
    cut = grid.Grid(msgspec.structs.replace(model(A100), id="declared", engines={}, profiles=kept))
    assert slice_search.fits([(cut, grid.EMPTY)], ["1g.5gb+me", "1g.5gb"])
    assert not slice_search.fits([(cut, grid.EMPTY)], ["1g.5gb+me"] * 2)
    assert slice_search.fits([(cut, grid.EMPTY)] * 2, ["1g.5gb+me"] * 2)


def test_s04_an_a30_has_4_units() -> None:
    cut = grid.of(model("NVIDIA A30"))
    assert cut.units == 4
    assert slice_search.fits([(cut, grid.EMPTY)], ["1g.6gb"] * 3 + ["1g.6gb+me"])
    assert not slice_search.fits([(cut, grid.EMPTY)], ["1g.6gb+me", "2g.12gb+me"]), "one set of media engines"
    assert not slice_search.fits([(cut, grid.EMPTY)], ["4g.24gb", "1g.6gb"])


def test_s04_an_rtx_pro_6000_has_12_units() -> None:
    cut = grid.of(model("NVIDIA RTX PRO 6000 Blackwell Server Edition"))
    assert cut.units == 12
    assert slice_search.fits([(cut, grid.EMPTY)], ["1g.24gb"] * 4)
    assert slice_search.fits([(cut, grid.EMPTY)], ["2g.48gb", "1g.24gb", "1g.24gb+gfx"])
    assert not slice_search.fits([(cut, grid.EMPTY)], ["1g.24gb"] * 5)


def test_s04_all_media_engines_leave_room_only_for_neighbours_without() -> None:
    cut = grid.of(model("NVIDIA RTX PRO 6000 Blackwell Server Edition"))
    assert slice_search.fits([(cut, grid.EMPTY)], ["1g.24gb+me.all", "1g.24gb-me", "2g.48gb-me"])
    assert not slice_search.fits([(cut, grid.EMPTY)], ["1g.24gb+me.all", "1g.24gb"])


@pytest.mark.parametrize("seed", range(40))
def test_s04_what_was_packed_by_somebody_is_found_again_on_several_gpus(seed: int) -> None:
    """Fill GPUs at random, keep what was put there, and ask for all of it as one pod."""
    dice = random.Random(seed)
    cut = grid.of(model(A100))
    gpus, wants = [], []
    for _ in range(dice.randint(2, 5)):
        blocked, state = _blocked(dice, cut)
        gpus.append((cut, blocked))
        while places := [(shape, start) for shape in cut.ordered for start in cut.places(state, shape)]:
            shape, start = dice.choice(places)
            state = cut.put(state, shape, start)
            wants.append(shape.name)
    dice.shuffle(wants)
    assert slice_search.fits(gpus, wants)


def _blocked(dice: random.Random, cut: grid.Grid) -> tuple[int, int]:
    state = grid.EMPTY
    for _ in range(dice.randint(0, 2)):
        places = [(shape, start) for shape in cut.ordered for start in cut.places(state, shape) if shape.size < 8]
        shape, start = dice.choice(places)
        state = cut.put(state, shape, start)
    return state, state


def test_f02_a_static_layout_offers_its_places_and_no_others() -> None:
    layout = [("2g.20gb", 0), ("2g.20gb", 2), ("2g.20gb", 4), ("1g.10gb", 6)]
    emulated = CATALOG.find("NVIDIA-H200")
    assert emulated is not None
    starts = {name: tuple(start for other, start in layout if other == name) for name, _ in layout}
    kept = (p for p in emulated.profiles if p.name in starts)
    fixed = tuple(msgspec.structs.replace(profile, starts=starts[profile.name]) for profile in kept)
    cut = grid.Grid(msgspec.structs.replace(emulated, profiles=fixed))
    assert slice_search.fits([(cut, grid.EMPTY)], ["2g.20gb"] * 3 + ["1g.10gb"])
    assert not slice_search.fits([(cut, grid.EMPTY)], ["1g.10gb"] * 2)
    assert cut.shape("3g.40gb") is None


@pytest.mark.parametrize("seed", range(150))
def test_s04_the_search_finds_exactly_what_brute_force_finds(seed: int) -> None:
    dice = random.Random(seed)
    cuts = [grid.of(model(dice.choice((A100, "NVIDIA A30")))) for _ in range(dice.randint(1, 2))]
    gpus = [(cut, _random_state(dice, cut)) for cut in cuts]
    names = [shape.name for cut in cuts for shape in cut.ordered]
    wants = [dice.choice(names) for _ in range(dice.randint(1, 6))]
    assert slice_search.fits(gpus, wants) == _brute_force(gpus, wants), (gpus, wants)


def _random_state(dice: random.Random, cut: grid.Grid) -> int:
    state = grid.EMPTY
    for _ in range(dice.randint(0, 3)):
        places = [(shape, start) for shape in cut.ordered for start in cut.places(state, shape)]
        if places:
            shape, start = dice.choice(places)
            state = cut.put(state, shape, start)
    return state


def _brute_force(gpus: list[tuple[grid.Grid, int]], wants: list[str]) -> bool:
    if not wants:
        return True
    first, rest = wants[0], wants[1:]
    for number, (cut, state) in enumerate(gpus):
        shape = cut.shape(first)
        for start in cut.places(state, shape) if shape else ():
            assert shape is not None
            if _brute_force([*gpus[:number], (cut, cut.put(state, shape, start)), *gpus[number + 1 :]], rest):
                return True
    return False
