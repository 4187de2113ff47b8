"""The grid of a sweep as its YAML file says it: axes and settings, checked key by key before anything else is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from specdec_lib.bench.environment import device_of, dtype_of
from specdec_lib.bench.plan import SEEDS, check_threads
from specdec_lib.hub.locate import path_of
from specdec_lib.sampling import Sampling
from specdec_lib.sweep.yaml_lines import Place, line_of, read_yaml
from specdec_lib.types import Refusal

COUNTING, TIMING = "counting", "timing"
MOST = 10_000                                      # cells of a sweep, and values of an axis
TIMING_ONLY = {"cores": None, "repeats": 1}        # keys that mean nothing where nothing is timed, and their defaults


def several(value: Any) -> Any:
    """A list as it is, any other value as a list of one."""
    return value if isinstance(value, list) else [value]


def distinct(values: list) -> list:
    """The values; ValueError where one stands twice, and for more than a sweep has cells."""
    if len(values) > MOST:
        raise ValueError(f"there are {len(values):,} values, and a sweep has at most {MOST:,} cells: give fewer")
    twice = [value for place, value in enumerate(values) if value in values[:place]]
    if twice:
        raise ValueError(f"{twice[0]!r} stands twice: write it once")
    return values


class GridPart(BaseModel):
    """What all parts of a grid share: types are taken strictly, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class PromptSet(GridPart):
    """Prompts of one file; a sweep may have several sets."""

    file: str | None = None                        # relative to the grid's file; None = the target's own prompts
    families: Annotated[list[str], Field(min_length=1)] | None = None      # None = all
    limit: Annotated[int, Field(ge=1)] | None = None          # spread evenly over the families
    turns: Annotated[int, Field(ge=1)] | None = None          # first turns of a conversation


class MethodAxis(GridPart):
    """A method and the values of its parameters; `svip.h` is the parameter `h` of a part behind an @."""

    method: str
    parameters: dict[str, Any] = Field(default_factory=dict)      # a list is an axis, anything else one value


def as_axis(value: Any) -> Any:
    """A name alone is a method without parameters."""
    return {"method": value} if isinstance(value, str) else value


Axis = Annotated[MethodAxis, BeforeValidator(as_axis)]


class Grid(GridPart):
    """All axes of a sweep. A cell is one value of each, over all prompts of one set."""

    mode: Literal["counting", "timing"]
    methods: Annotated[list[Axis], BeforeValidator(several), Field(min_length=1)]
    prompts: Annotated[list[PromptSet], BeforeValidator(several), Field(min_length=1)] = [PromptSet()]
    targets: Annotated[list[str], BeforeValidator(several), Field(min_length=1)] = ["smollm2-135m"]
    device: str = "cpu"
    dtypes: Annotated[list[str], BeforeValidator(several), Field(min_length=1)] = ["auto"]
    temperatures: Annotated[list[float], BeforeValidator(several), Field(min_length=1)] = [0.0]
    max_new_tokens: Annotated[list[Annotated[int, Field(ge=1, le=10 ** 6)]], BeforeValidator(several),
                              Field(min_length=1)] = [64]
    seeds: Annotated[list[Annotated[int, Field(gt=-SEEDS, lt=SEEDS)]], BeforeValidator(several),
                     Field(min_length=1)] = [0]
    cores: Annotated[int, Field(ge=1)] | None = None          # of a timing cell; None = all of its node
    repeats: Annotated[int, Field(ge=1)] = 1       # of a timing cell
    draft: str | None = None
    cost: str | None = None                        # a saved cost curve, relative to the grid's file
    checkpoints: str | None = None                 # a folder, relative to the grid's file; None = the shipped ones

    @field_validator("targets", "temperatures", "max_new_tokens", "seeds")
    @classmethod
    def no_value_twice(cls, values: list) -> list:
        return distinct(values)

    @field_validator("temperatures")
    @classmethod
    def temperatures_exist(cls, values: list[float]) -> list[float]:
        for value in values:
            Sampling(value)
        return values

    @field_validator("device")
    @classmethod
    def device_is_here(cls, value: str) -> str:
        return device_of(value)

    @field_validator("dtypes")
    @classmethod
    def dtypes_exist(cls, values: list[str], info: ValidationInfo) -> list[str]:
        device, targets = info.data.get("device", "cpu"), info.data.get("targets", [])
        auto = {dtype_of("auto", device, target=target): target for target in targets if "auto" in values}
        if len(auto) > 1:
            raise Refusal("dtypes: auto is " + " and ".join(f"{name} for {target}" for name, target in auto.items())
                          + ": name the dtypes")
        return distinct([dtype_of(value, device) if value != "auto" else next(iter(auto), "float32")
                         for value in values])

    @field_validator("cores")
    @classmethod
    def cores_exist(cls, value: int | None) -> int | None:
        check_threads(value)
        return value


@dataclass(frozen=True)
class GridFile:
    """A grid, the file it was read from, and the lines of its values."""

    path: Path
    grid: Grid
    lines: Mapping[Place, int]

    def refusal(self, why: object, *place: str | int) -> Refusal:
        """A refusal that names the line of the value at this place."""
        return Refusal(f"{self.path}, line {line_of(place, self.lines)}: {why}")

    def beside(self, name: str) -> Path:
        """A path of the grid, which is relative to the folder of its file."""
        return self.path.absolute().parent / path_of(name)


def read_grid(path: Path) -> GridFile:
    """The grid in this file; Refusal naming the line of the first mistake. Specs and files are not looked at yet."""
    data, lines = read_yaml(path)
    if not isinstance(data, dict):
        raise Refusal(f"{path} is no grid: it needs the keys mode and methods")
    try:
        read = GridFile(path, Grid.model_validate(data), lines)
    except ValidationError as error:
        found = [(line_of(one["loc"], lines), sentence(one, data)) for one in error.errors(include_url=False)]
        line, why = min(found, key=lambda pair: pair[0])
        raise Refusal(f"{path}, line {line}: {why}") from None
    refuse_other_budgets(read)
    for key, default in TIMING_ONLY.items():
        if read.grid.mode == COUNTING and getattr(read.grid, key) != default:
            raise read.refusal(f"{key} is for mode: {TIMING}; counting cells have one thread and are not timed", key)
    return read


def refuse_other_budgets(read: GridFile) -> None:
    """Refuses a timing grid without a cost curve, or with more than one fits: its node budgets would be no bench's."""
    grid = read.grid
    if grid.mode == TIMING and grid.cost is None:
        raise read.refusal(f"mode: {TIMING} needs the key cost, or methods would draft other numbers of nodes than in a"
                           f" bench: write `cost: curve.json` and measure it with `specdec cost --target"
                           f" {grid.targets[0]} --dtype {grid.dtypes[0]} --out curve.json`", "mode")
    for key in ("targets", "dtypes"):
        if grid.mode == TIMING and len(getattr(grid, key)) > 1:
            raise read.refusal(f"mode: {TIMING} takes one of {key}, that of its cost curve: write a grid for each", key)


def sentence(error: Any, data: Any) -> str:
    """One error of pydantic in words."""
    place = [str(step) for step in error["loc"]]
    if error["type"] == "extra_forbidden":
        known = {1: Grid, 3: MethodAxis if place[0] == "methods" else PromptSet}.get(len(place), Grid)
        return f"there is no key {place[-1][:60]!r} here; there are {', '.join(known.model_fields)}"
    if error["type"] == "missing":
        return f"the key {place[-1]!r} is missing"
    shown = repr(error["input"])
    why = error["msg"].removeprefix("Value error, ")
    got = "" if error["type"] == "value_error" else f", got {shown if len(shown) <= 60 else shown[:57] + '...'}"
    return f"{'.'.join(place)}: {why[:1].lower()}{why[1:]}{got}"
