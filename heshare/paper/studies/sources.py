"""The GPUs of a notebook's figures by its parameter `source`: emulated ones, or recorded ones with a model of each.

A source is `emulated` (the paper's T4, V100 and A100), or a list such as `recorded:H100,emulated:T4`. A setting that
was recorded answers as measured; any other by the device model fitted to all rows of the record. The predictor is
trained on the record's samples alone. Clocks that were not recorded are not used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants, default
from heshare.devices.device import Device
from heshare.lab.calibration import own_record
from heshare.ops.recording import recordings
from heshare.ops.recording.profile_check import ERROR, Finding, check_profile
from heshare.ops.recording.recordings import COMMAND, Recording
from heshare.paper.studies import platforms
from heshare.paper.studies.recorded_devices import Record, RecordedCard, RecordedDevice
from heshare.prediction.features import is_reference
from heshare.prediction.load import covered_rows, predictor_factory, train
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import Predictor
from heshare.prediction.samples import profile_samples, split_rows
from heshare.profiles import store
from heshare.profiles.missing_utilisation import fill_missing, without_fill_warning
from heshare.profiles.schema import in_main_precision
from heshare.running.result import Run
from heshare.shared import files
from heshare.shared.arrays import FloatArray
from heshare.shared.disk_cache import cached, key_of
from heshare.shared.errors import InputError, require
from heshare.world import catalogue
from heshare.world.catalogue import PAPER_GPUS
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.workload import DEFAULT_PRECISION, Resident

EMULATED, RECORDED = "emulated", "recorded"
MEASURED, FITTED = "measured", "fitted"
"""Provenance of a recorded setting, and of what the device model says that is fitted to the record."""
CARDS = 4
"""GPUs of a cluster of recorded cards, unless a notebook's parameter names such a cluster."""
CLOCKS, KINDS, FRONTS, PAPER, WORKLOADS = "clocks", "kinds", "fronts", "paper-gpus", "workloads"
"""What a figure or a claim may need of a source: two clocks of each card, two kinds of card, one of both, T4, V100 and
A100, every workload recorded alone at one inference batch size."""
LEAST_CLOCKS = 2
TAG = "needs-"
"""The beginning of a tag of a notebook's cell that names what the cell needs."""


@dataclass(frozen=True)
class Lack:
    """A question that a source cannot answer: what needs it, why, and the command that would record it."""

    need: str
    figures: str
    reason: str
    command: str

    def __str__(self) -> str:
        return f"{self.reason}. To have it: {self.command}"


@dataclass(frozen=True, eq=False)
class Source:
    """The GPUs of a notebook's figures.

    Attributes:
        text: the parameter, such as `recorded:H100`.
        records: the recorded cards.
        emulated: the names of the cards that are emulated only.
    """

    text: str
    records: tuple[Recording, ...]
    emulated: tuple[str, ...]

    @property
    def is_default(self) -> bool:
        """Whether it is that of the paper's figures: T4, V100 and A100, emulated."""
        return self.text == EMULATED

    @property
    def gpus(self) -> tuple[str, ...]:
        """The names of its cards, recorded ones first."""
        return (*(record.gpu for record in self.records), *self.emulated)

    @property
    def beside(self) -> tuple[Recording, ...]:
        """The records that Figs. 1 to 4 show beside its cards: those of this package, beside the paper's."""
        return recordings.shipped() if self.is_default else ()

    @property
    def folder(self) -> str:
        """Its name as a folder: `recorded-H100+emulated-T4`; a path counts by its last folder."""
        parts = [f"{RECORDED}-{record.path.parent.name}" for record in self.records]
        return "+".join([*parts, *(f"{EMULATED}-{gpu}" for gpu in self.emulated)])

    @property
    def platform(self) -> str:
        """The platform of a `harness.Setting`."""
        return platforms.AS_FITTED if self.is_default else self.text

    @property
    def provenance(self) -> str:
        """Of what runs on its cards: `emulated`, or `fitted` where a card's record is a measurement."""
        return FITTED if any(record.provenance == MEASURED for record in self.records) else EMULATED

    @property
    def origin(self) -> str:
        """The provenance of runs in words, for captions; empty for the default source."""
        if self.is_default or not self.records:
            return ""
        names = " and ".join(f"{record.gpu} ({record.provenance})" for record in self.records)
        beside = f"; {', '.join(self.emulated)} emulated" if self.emulated else ""
        return f"Recorded settings of {names} as they are, others by the device model fitted to the record{beside}."

    @cached_property
    def tables(self) -> pd.DataFrame:
        """The rows of all records in the precision that most of them have; utilisations that lack are modelled.

        Raises:
            InputError: records of different precisions.
        """
        parts = [in_main_precision(record.table[record.table["engine"] == "eager"]) for record in self.records]
        found = sorted({str(part["precision"].iloc[0]) for part in parts if len(part)})
        action = "Name records of one precision."
        require("source", ", ".join(found), len(found) == 1, "one precision in all records", action)
        with without_fill_warning():
            return fill_missing(pd.concat(parts, ignore_index=True))

    @property
    def precision(self) -> str:
        """The precision of all tasks: that of the records."""
        return str(self.tables["precision"].iloc[0]) if self.records else DEFAULT_PRECISION

    @cached_property
    def recorded_sizes(self) -> tuple[int, ...]:
        """The inference batch sizes at which every record has every workload alone; all for emulated cards."""
        alone = self.tables[is_reference(self.tables)]
        alone = alone[alone["workload"].isin(list(catalogue.paper_models()))]
        counts = pd.crosstab(alone["batch_size"], alone["gpu"])
        complete = counts.eq(len(catalogue.paper_models())).all(axis=1)
        return tuple(int(size) for size in complete.index[complete])

    def batch_sizes(self, given: Sequence[int]) -> list[int]:
        """Return those of the given inference batch sizes that were recorded; all that were recorded if none is."""
        if not self.records:
            return list(given)
        return [size for size in given if size in self.recorded_sizes] or list(self.recorded_sizes)

    def cluster(self, given: str, count: int = CARDS) -> str:
        """Return the given cluster if the source has all its cards, else `count` of them in equal parts."""
        if self._has(given):
            return given
        number, rest = divmod(max(count, len(self.gpus)), len(self.gpus))
        return ",".join(f"{number + (place < rest)}x{gpu}" for place, gpu in enumerate(self.gpus))

    def mixes(self, given: Sequence[str]) -> list[str]:
        """Return the given mixes if the source has all their cards, else two of each kind in every pair, and all."""
        if all(map(self._has, given)):
            return list(given)
        pairs = [f"2x{one},2x{other}" for one, other in combinations(self.gpus, 2)]
        every = [self.cluster("")] if len(self.gpus) > 2 else []
        return [*pairs, *every]

    def check(self, given: Mapping[str, object]) -> None:
        """Check the records, and the parameters that a user has given.

        Parameters that a notebook has by itself are replaced instead (`cluster`, `mixes`, `kinds`, `batch_sizes`).

        Raises:
            InputError: a record has errors (`heshare profile --check`), or a parameter names other cards than the
                source's or inference batch sizes that were not recorded.
        """
        expected, action = f"cards of the source: {', '.join(self.gpus)}", "Name them, or add a card to the source."
        for name in ("cluster", "clusters", "kinds"):
            value: Any = given.get(name, ())
            for text in [value] if isinstance(value, str) else list(value):
                require(name, str(text), self._has(str(text)), expected, action)

        for record, errors in zip(self.records, self._errors, strict=True):
            first = f"{len(errors)} errors, first: {errors[0].text}" if errors else ""
            action = f"All of them: heshare profile --check {record.path.parent}"
            require("source", first, not errors, "a record without errors", action, file=record.path)

        sizes: Any = given.get("batch_sizes", ())
        recorded = self.recorded_sizes if self.records else sizes
        lacking = [str(size) for size in sizes if size not in recorded]
        expected = f"recorded ones: {', '.join(map(str, recorded))}"
        require("batch_sizes", ", ".join(lacking), not lacking, expected, "Name recorded inference batch sizes.")

    @cached_property
    def _errors(self) -> list[list[Finding]]:
        # Of each record; every notebook of a run asks for them.
        checked = [check_profile(record.path) for record in self.records]
        return [[finding for finding in found if finding.level == ERROR] for found in checked]

    def kinds(self, given: Sequence[str]) -> list[str]:
        """Return the given types of GPU if the source has all of them, else its own."""
        return list(given if all(map(self._has, given)) else self.gpus)

    def _has(self, cluster: str) -> bool:
        if self.is_default:
            return True
        return bool(cluster) and {gpu.name for gpu in Cluster.parse(cluster).kinds} <= set(self.gpus)

    @cached_property
    def _cards(self) -> Mapping[str, RecordedCard]:
        found = {gpu: RecordedCard(catalogue.gpu(gpu), self.constants) for gpu in self.emulated}
        for record in self.records:
            table = self.tables[self.tables["gpu"] == record.gpu]
            gpu = replace(catalogue.gpu(record.gpu), clocks_mhz=tuple(sorted(map(int, table["sm_mhz"].unique()))))
            found[record.gpu] = RecordedCard(gpu, self.constants, Record(table, source=str(record.path)))
        return found

    @cached_property
    def constants(self) -> Constants:
        """The constants of the device model, fitted to all rows of the records; fitted once on a machine."""
        if not self.records:
            return default()
        return cached("own-record", self._key, lambda: own_record.fit_with(self.tables).constants)

    @cached_property
    def model_errors(self) -> pd.DataFrame:
        """The device model's errors on half of the recorded settings, fitted to the others (`own_record.errors`)."""
        return cached("own-errors", self._key, lambda: own_record.errors(self.tables))

    def spread(self, quantity: str, sharing: str = "alone") -> float:
        """Return the standard deviation of the logarithm of `time` or `power` from settings left out of a fit.

        A 90th percentile of |error| is 1.64 of it.
        """
        found = self.model_errors
        chosen = (found["model"] == FITTED) & (found["quantity"] == quantity) & (found["sharing"] == sharing)
        return float(np.log1p(found[chosen]["p90_pct"].mean() / 100) / 1.64)

    def prepare(self) -> None:
        """Fit the device model to the records, unless that is in the cache already; several notebooks need it."""
        if self.records:
            _ = self.constants, self.model_errors

    @property
    def _key(self) -> str:
        code = [path for part in ("lab/calibration", "devices") for path in (files.PACKAGE / part).glob("*.py")]
        data = [*files.data("calibration").rglob("*.csv"), files.data("gpus.csv")]
        return key_of([*(record.path for record in self.records), *sorted(code), *sorted(data)], ("scipy",))

    def gpus_of(self, cluster: str) -> Cluster:
        """Return a cluster of the source's cards; recorded ones have the recorded clocks only."""
        return Cluster(tuple(self._card(gpu).gpu for gpu in Cluster.parse(cluster).gpus))

    def _card(self, gpu: Gpu) -> RecordedCard:
        found = self._cards.get(gpu.name)
        if found is None:
            raise InputError(gpu.name, f"a card of the source: {', '.join(self.gpus)}", "Name one.", column="cluster")
        return found

    def devices(self, cluster: Cluster) -> list[Device]:
        """Return the devices of a cluster of `gpus_of`."""
        return [RecordedDevice(self._card(gpu), provenance=self.provenance) for gpu in cluster.gpus]

    def oracle(self) -> DevicePredictor | None:
        """Return a predictor that is never wrong on the source's cards; None for the default source."""
        return None if self.is_default else DevicePredictor(lambda gpu, sets, mhz: self._card(gpu).rates(sets, mhz))

    def predictor(self) -> Predictor:
        """Return the predictor of all policies, trained on the records alone."""
        return self._factory()

    @cached_property
    def _factory(self) -> Callable[[], Predictor]:
        return predictor_factory(self.samples)

    @cached_property
    def samples(self) -> pd.DataFrame:
        """The rows that train the predictor: those of the records, and a profile of each emulated card like them."""
        if self.is_default:
            return store.read_shipped()
        emulated = [platforms.profile(gpu, self.constants, precision=self.precision) for gpu in self.emulated]
        return pd.concat([self.tables, *emulated] if self.records else emulated, ignore_index=True)

    @property
    def sampled(self) -> dict[str, int]:
        """How many rows of `samples` have each provenance."""
        return {str(kind): int(count) for kind, count in self.samples["provenance"].value_counts().items()}

    @cached_property
    def predictor_errors(self) -> Mapping[str, float]:
        """How many samples train, and the mean |error| of time and power, %, on the 25 % of them left out."""
        covered = self.samples[covered_rows(self.samples)].reset_index(drop=True)
        samples = profile_samples(covered)
        tested = split_rows(len(samples.rows), rng=np.random.default_rng(0))[1]
        found = np.column_stack(train(covered, seed=0).model.predict(samples.features()[tested]))
        error: FloatArray = 100.0 * np.abs(found / samples.truth[tested] - 1.0)
        time_pct, power_pct = np.nanmean(error, axis=0).tolist()
        return {"samples": len(samples.rows), "left_out": len(tested), "time_pct": time_pct, "power_pct": power_pct}

    def recorded_pct(self, run: Run) -> float:
        """Return in how much of the busy time of a run's GPUs the setting was recorded, %."""
        busy_s = recorded_s = 0.0
        for segment in run.record.segments:
            residents = tuple(Resident(run.tasks[task].workload, pct) for task, pct, _ in segment.residents)
            if residents:
                spent_s = segment.end_s - segment.start_s
                busy_s += spent_s
                is_recorded = self._card(run.cluster.gpus[segment.gpu]).is_recorded(residents, segment.requested_mhz)
                recorded_s += spent_s * is_recorded
        return 100.0 * recorded_s / busy_s

    def lacks(self) -> list[Lack]:
        """Return the questions that the source cannot answer, with what would answer each."""
        if self.is_default:
            return []

        found = []
        few = [name for name, card in self._cards.items() if len(card.gpu.clocks_mhz) < LEAST_CLOCKS]
        if few:
            reason = f"{', '.join(few)} was recorded at one clock"
            found.append(Lack(CLOCKS, "Fig. 3, the worth of clocks", reason, f"{COMMAND} --clocks"))

        if len(self.gpus) < 2:
            reason = f"{self.gpus[0]} is one kind of card"
            found.append(
                Lack(KINDS, "Figs. 8 and 9, placement", reason, f"make figures SOURCE={self.text},{EMULATED}:T4")
            )

        if few and len(self.gpus) < 2:
            reason = f"every placement takes the same energy on one kind of card at one clock ({self.gpus[0]})"
            found.append(Lack(FRONTS, "Fig. 7's area of fronts", reason, f"{COMMAND} --clocks"))

        if not set(PAPER_GPUS) <= set(self.gpus):
            missing = [gpu for gpu in PAPER_GPUS if gpu not in self.gpus]
            reason = f"no {', '.join(missing)} here"
            command = f"make figures SOURCE={','.join([self.text, *(f'{EMULATED}:{gpu}' for gpu in missing)])}"
            found.append(Lack(PAPER, "T4 over A100", reason, command))

        if self.records and not self.recorded_sizes:
            reason = "no inference batch size has every workload alone"
            found.append(Lack(WORKLOADS, "Figs. 5 to 11", reason, COMMAND))
        return found

    @property
    def at_one_clock(self) -> str:
        """The words for captions of systems whose clocks could not be set; empty if they could."""
        return " (at one clock)" if self.lack(CLOCKS) else ""

    def lack(self, need: str) -> Lack | None:
        """Return why the source cannot answer what has a need; None if it can."""
        return next((each for each in self.lacks() if each.need == need), None)


@cache
def read(text: str) -> Source:
    """Return the source that a text names: `emulated`, or a list such as `recorded:H100,emulated:T4`.

    `recorded:` takes a name of `data/profiles/measured` or the folder of a record.

    Raises:
        InputError: another form, a card that is not recorded or unknown, a bad table, or a card twice.
    """
    if text == EMULATED:
        return Source(text, (), PAPER_GPUS)
    records, emulated = [], []
    for part in text.split(","):
        kind, _, name = part.strip().partition(":")
        expected = "emulated, or a list such as recorded:H100,emulated:T4"
        require("source", repr(text), kind in (EMULATED, RECORDED) and bool(name), expected, "Correct the source.")
        if kind == RECORDED:
            records.append(recordings.read(name))
        else:
            emulated.append(catalogue.gpu(name).name)
    found = Source(text, tuple(records), tuple(emulated))
    twice = ", ".join(sorted({gpu for gpu in found.gpus if found.gpus.count(gpu) > 1}))
    require("source", twice, not twice, "each card once", "Name one record of a card.")
    return found


def _is_path(name: str) -> bool:
    return "/" in name or (Path(name).exists() and not recordings.is_name(name))


def without(text: str, tags: Sequence[str]) -> Lack | None:
    """Return why a source cannot run a notebook's cell with these tags, such as `needs-clocks`; None if it can."""
    needed = (tag.removeprefix(TAG) for tag in tags if tag.startswith(TAG))
    return next((lack for need in needed if (lack := read(text).lack(need))), None)


def absolute(text: str) -> str:
    """Return a source whose paths do not depend on the current folder."""
    parts = [part.strip().partition(":") for part in text.split(",")]
    is_path = [kind == RECORDED and _is_path(name) for kind, _, name in parts]
    return ",".join(
        f"{kind}:{Path(name).resolve()}" if path else kind + colon + name
        for (kind, colon, name), path in zip(parts, is_path, strict=True)
    )
