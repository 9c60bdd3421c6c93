"""One least squares over all records: effects on times and power, and each GPU's power and contention.

Every observation is a set of residents with a logarithm of a time or of a power. The model's value is that of
`board_power.solve_sets`, the function behind `co_run`. The residuals are weighted so that a record of n rows counts as
n / (1 + 0.02 (n - 1)) rows: a record of thousands of rows counts as fifty. Large residuals count by their absolute
value (Huber). Each effect has its prior. Gauss-Newton steps with the damping of Levenberg and Marquardt minimise the
sum.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from heshare.devices.board_power import solve_sets
from heshare.devices.constants import BY_SHARE, CLOCK, DYNAMIC, STEADY, Contention, Power, card_row
from heshare.devices.iteration_time import BATCH, EXTRA, FILL, FIXED, HOST, INTENSITY, MEMORY, SHARE
from heshare.devices.timing_effects import COMPONENTS, PRIORS, Cell, Term, chip, copies, offsets, terms
from heshare.lab.calibration.observations import FULL_LIMIT, LIMIT, Observation
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.world.gpu import Gpu

Values = Mapping[tuple[str, str, str], float]
"""Effects by (component, effect, key)."""

CARD_COMPONENTS = ("dynamic", "clock", "steady", "by_share")
CARD_PRIORS: Mapping[str, Mapping[str, float]] = {
    "dynamic": {"all": 0.5, "card": 0.4, "laboratory": 0.1},
    "clock": {"all": 0.7, "card": 0.4},
    "steady": {"all": 1.0, "chip": 0.7},
    "by_share": {"all": 1.0, "chip": 0.7},
}
"""Standard deviation of each effect on a GPU's power and contention, of the logarithm."""
CLOCK_PART, STEADY_START, BY_SHARE_START = 0.15, 0.05, 0.1
"""Offsets: power of busy clocks over the power limit less the idle power; slowdown by a co-runner and its share."""

NOISE = 0.04
"""Relative standard deviation of a measured time or power; assumed."""
CORRELATION = 0.02
"""Correlation of two rows of a record, from which a record's weight follows; assumed."""
HUBER = 3.0
"""Standard deviations beyond which a residual counts by its absolute value."""
STEPS, ENOUGH = 30, 3e-4
"""Most steps, and the relative gain below which they end."""

_COLUMNS = {"work": BATCH, "memory": MEMORY, "fill": FILL, "host": HOST, "intensity": INTENSITY}
_CARD_COLUMNS = (DYNAMIC, CLOCK, STEADY, BY_SHARE)
_BUMP = 1e-4
_LEAST_LOG, _MOST_LOG = -60.0, 8.0


def card_offsets(gpu: Gpu) -> dict[str, float]:
    """Return the logarithm of each of `CARD_COMPONENTS` that follows from features alone; powers in W."""
    room_w = gpu.tdp_w - gpu.idle_w
    values = (room_w, CLOCK_PART * room_w, STEADY_START, BY_SHARE_START)
    return dict(zip(CARD_COMPONENTS, np.log(values).tolist(), strict=True))


def card_terms(gpu: Gpu, laboratory: str = "") -> Iterator[Term]:
    """Yield every effect on a GPU's power and contention; `laboratory` is empty for an emulated GPU."""
    for component in ("dynamic", "clock"):
        yield (component, "all", ""), 1.0
        yield (component, "card", gpu.name), 1.0
    if laboratory:
        yield ("dynamic", "laboratory", laboratory), 1.0
    for component in ("steady", "by_share"):
        yield (component, "all", ""), 1.0
        yield (component, "chip", chip(gpu)), 1.0


@dataclass(frozen=True)
class Fit:
    """Fitted effects.

    Attributes:
        effects: by (component, effect, key).
        cost: the sum that was minimised.
        steps: how many steps it took.
    """

    effects: Values
    cost: float
    steps: int


class _Move(NamedTuple):
    # A component that is bumped: the rows, their slots, the column of the design for each row, and which of the slots
    # are of the cell (none for a component of the card).
    name: str
    places: IntArray
    slots: IntArray
    columns: IntArray
    bumped: BoolArray = np.zeros(0, dtype=bool)


class PooledProblem:
    """The least squares over n observations.

    Args:
        rows: the observations.
        curves: constants of each GPU's power that come from clock sweeps and idle readings, by the GPU's name; those
            that are fitted here are ignored.
    """

    def __init__(self, rows: Sequence[Observation], curves: Mapping[str, Power]) -> None:
        self.rows = tuple(rows)
        cells: dict[Cell, int] = {}
        cards: dict[tuple[Gpu, str], int] = {}
        slots: list[tuple[int, int, int, float, float]] = []
        starts = [0]
        for place, row in enumerate(self.rows):
            local: dict[int, int] = {}
            for task in row.tasks:
                cell = cells.setdefault(row.cell(task), len(cells))
                slots.append((place, cell, local.setdefault(cell, len(local)), task.batch_size, task.share))
            starts.append(len(slots))
            cards.setdefault((row.gpu, row.laboratory), len(cards))

        self.cells, self.cards = tuple(cells), tuple(cards)

        table = np.array(slots)
        self._row, self._cell, self._group = table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2].astype(int)
        self._size, self._share, self._starts = table[:, 3], table[:, 4], np.array(starts)
        self._which = np.array([cards[row.gpu, row.laboratory] for row in self.rows])
        self._card_rows = np.array([card_row(curves[gpu.name], Contention(), gpu) for gpu, _ in self.cards])
        self._eager = np.array([cell.engine == "eager" for cell in self.cells])
        self._copies = np.array([copies(cell) for cell in self.cells])

        top_mhz = np.array([row.gpu.max_mhz for row in self.rows], dtype=float)
        held_mhz = np.array([row.sm_mhz for row in self.rows])
        self._request_mhz = np.where(np.isnan(held_mhz), top_mhz, held_mhz)
        cap_w, default_w = np.array([row.cap_w for row in self.rows]), np.array([row.gpu.tdp_w for row in self.rows])
        self._cap_w = np.where(np.isnan(cap_w), default_w, cap_w)
        self._ratio = np.flatnonzero([row.kind == LIMIT for row in self.rows])
        # Times depend on constants of power through the clock that a limit leaves. Only rows of known limits may move
        # these constants: in the others the clock is not known.
        self._limited = np.array([row.kind in (LIMIT, FULL_LIMIT) for row in self.rows])

        times_s, powers_w = [row.time_s for row in self.rows], [row.power_w for row in self.rows]
        self.measured: FloatArray = np.log(np.array([times_s, powers_w]))  # (2, n): logarithms of time and power
        self._has_power = ~np.isnan(self.measured[1]) | self._limited
        self._powered = np.zeros(len(self.cells), dtype=bool)
        self._powered[self._cell[self._has_power[self._row]]] = True
        self._set_up_effects()

    def _set_up_effects(self) -> None:
        # Offsets, (components, cells), the same of cards, and the sparse matrix from effects to both: a row for each
        # component and cell, then for each component and card.
        self.names: dict[tuple[str, str, str], int] = {}
        spread: list[float] = []

        def matrices(
            members: Sequence[list[Term]], components: Sequence[str], priors: Mapping[str, Mapping[str, float]]
        ) -> list[tuple[list[int], list[int], list[float]]]:
            entries: dict[str, tuple[list[int], list[int], list[float]]] = {name: ([], [], []) for name in components}
            for member, member_terms in enumerate(members):
                for key, factor in member_terms:
                    if key not in self.names:
                        self.names[key] = len(self.names)
                        spread.append(priors[key[0]][key[1]])
                    places, effects, factors = entries[key[0]]
                    places.append(member)
                    effects.append(self.names[key])
                    factors.append(factor)
            return list(entries.values())

        of_cells = matrices([list(self._terms(place)) for place in range(len(self.cells))], COMPONENTS, PRIORS)
        of_cards = matrices([list(card_terms(*card)) for card in self.cards], CARD_COMPONENTS, CARD_PRIORS)
        count = len(self.names)
        to_cells = [_matrix(entries, len(self.cells), count) for entries in of_cells]
        to_cards = [_matrix(entries, len(self.cards), count) for entries in of_cards]
        self._design = sparse.vstack([*to_cells, *to_cards]).tocsr()
        self._cell_offsets = np.array([list(offsets(cell).values()) for cell in self.cells]).T
        self._card_offsets = np.array([list(card_offsets(gpu).values()) for gpu, _ in self.cards]).T
        self.precision = 1.0 / np.array(spread) ** 2

    def _terms(self, place: int) -> Iterator[Term]:
        # The effects on a cell without those that no observation can tell anything about: hosts of fused engines, and
        # the intensity of a program and a cell whose power was not measured.
        for name, factor in terms(self.cells[place]):
            component, effect, _ = name
            unknown = (
                (component == "host" and not self._eager[place])
                or (component == "copy" and not self._copies[place])
                or (component == "intensity" and effect in ("record", "cell") and not self._powered[place])
            )
            if not unknown:
                yield name, factor

    @cached_property
    def records(self) -> tuple[str, ...]:
        """Return the record of each observation, (n,)."""
        return tuple(row.record for row in self.rows)

    def weights(self, used: BoolArray) -> FloatArray:
        """Return the weight of each time and each power, (2, n): 0 where nothing was measured or `used` is False."""
        _, number = np.unique(self.records, return_inverse=True)
        is_measured = used & ~np.isnan(self.measured)
        sizes = np.array([np.bincount(number, each)[number] for each in is_measured])
        found = is_measured / (NOISE**2 * (1.0 + CORRELATION * (np.maximum(sizes, 1.0) - 1.0)))
        return np.asarray(found, dtype=np.float64)

    def predict(self, values: Values) -> FloatArray:
        """Return the logarithms of time and power of each observation, (2, n), by fitted effects."""
        return self._predict(*self._logs(self._vector(values)))

    def errors(self, values: Values) -> FloatArray:
        """Return log(modelled / measured) of each time and power, (2, n); NaN where nothing was measured."""
        return self.predict(values) - self.measured

    def _vector(self, values: Values) -> FloatArray:
        return np.array([values.get(name, 0.0) for name in self.names])

    def _logs(self, effects: FloatArray) -> tuple[FloatArray, FloatArray]:
        found = self._design @ effects
        size = self._cell_offsets.size
        cells = self._cell_offsets + found[:size].reshape(self._cell_offsets.shape)
        cards = self._card_offsets + found[size:].reshape(self._card_offsets.shape)
        return cells, cards

    def _predict(self, cells: FloatArray, cards: FloatArray) -> FloatArray:
        everything = np.arange(len(self.rows))
        found = self._evaluate(everything, self._residents(cells), cards)
        found[0, self._ratio] -= found[0, self._ratio - 1]
        return found

    def _residents(self, cells: FloatArray) -> FloatArray:
        # The `resident_rows` of all slots; `cells` are the logarithms of the components of each cell.
        work, memory, fill, latency, host, copy, intensity = np.exp(np.clip(cells, _LEAST_LOG, _MOST_LOG))
        cell, size = self._cell, self._size
        rows = np.zeros((len(cell), EXTRA + 1))
        rows[:, FIXED] = latency[cell] + np.where(self._copies[cell], copy[cell] * size, 0.0)
        rows[:, MEMORY] = memory[cell] * size
        rows[:, BATCH] = work[cell] * size
        rows[:, FILL] = fill[cell]
        rows[:, SHARE] = self._share
        rows[:, HOST] = np.where(self._eager[cell], host[cell], 0.0)
        rows[:, INTENSITY] = intensity[cell]
        return rows

    def _evaluate(self, places: IntArray, residents: FloatArray, cards: FloatArray) -> FloatArray:
        # Logarithms of time and power, (2, k), of these observations.
        counts = self._starts[places + 1] - self._starts[places]
        starts = np.concatenate([[0], np.cumsum(counts)])
        card_rows = self._card_rows.copy()
        card_rows[:, _CARD_COLUMNS] = np.exp(cards.T)
        found = solve_sets(
            residents, starts, card_rows, self._which[places], self._request_mhz[places], self._cap_w[places]
        )
        return np.asarray(np.log(found[:, :2].T), dtype=np.float64)

    def _moves(self, used: BoolArray) -> list["_Move"]:
        # What `derivatives` bumps: components of the cells that have effects on them, and those of cards, each in the
        # used rows whose time or measured power they can change.
        has_effect = np.diff(self._design.indptr)[: self._cell_offsets.size].reshape(self._cell_offsets.shape) > 0
        shared = used & (np.diff(self._starts) > 1)
        powered = used & self._has_power

        moves = []
        for component, name in enumerate(COMPONENTS):
            rows = powered if name == "intensity" else used
            for group in range(int(self._group.max()) + 1):
                moved = (self._group == group) & has_effect[component, self._cell] & rows[self._row]
                moves.append(self._move(name, component * len(self.cells), moved))

        for place, name in enumerate(CARD_COMPONENTS):
            rows = powered if name in ("dynamic", "clock") else shared
            first = self._cell_offsets.size + place * len(self.cards)
            moves.append(_Move(name, np.flatnonzero(rows), np.flatnonzero(rows[self._row]), first + self._which[rows]))
        return [move for move in moves if len(move.places)]

    def _move(self, name: str, first: int, moved: BoolArray) -> "_Move":
        # The move of a component of the cells in these slots, (slots,); its column of cell 0 is the `first` one.
        rows = np.zeros(len(self.rows), dtype=bool)
        rows[self._row[moved]] = True
        cell = np.zeros(len(self.rows), dtype=int)
        cell[self._row[moved]] = self._cell[moved]
        slots = np.flatnonzero(rows[self._row])
        return _Move(name, np.flatnonzero(rows), slots, first + cell[rows], moved[slots])

    def derivatives(self, values: Values, used: BoolArray) -> sparse.csr_matrix:
        """Return the derivatives of times, then powers, by each effect, shape (2 n, effects).

        A component of one cell of each observation is bumped at a time; the rest follows by the sparse design. Those of
        observations that are not `used`, (n,), and of powers that were not measured, are 0.
        """
        cells, cards = self._logs(self._vector(values))
        return self._slopes(self._moves(used), cells, cards, self._predict(cells, cards))

    def _slopes(
        self, moves: Sequence["_Move"], cells: FloatArray, cards: FloatArray, at: FloatArray
    ) -> sparse.csr_matrix:
        count = len(self.rows)
        plain = at.copy()
        plain[0, self._ratio] += plain[0, self._ratio - 1]
        residents = self._residents(cells)

        values, rows, columns = [], [], []
        for move in moves:
            changed = (self._moved(move, residents, cells, cards) - plain[:, move.places]) / _BUMP
            if move.name in ("intensity", "dynamic", "clock"):
                changed[0] *= self._limited[move.places]
            values.append(changed.ravel())
            rows += [move.places, count + move.places]
            columns += [move.columns, move.columns]

        entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
        found = sparse.csr_matrix(entries, shape=(2 * count, self._design.shape[0])) @ self._design

        # A ratio of times: its own row less the row before.
        ones = np.ones(len(self._ratio))
        before = sparse.csr_matrix((ones, (self._ratio, self._ratio - 1)), shape=(2 * count, 2 * count))
        return sparse.csr_matrix(found - before @ found)

    def _moved(self, move: "_Move", residents: FloatArray, cells: FloatArray, cards: FloatArray) -> FloatArray:
        # The logarithms of time and power of the rows of a move, (2, k), with the component larger by `_BUMP`.
        own = residents[move.slots]
        if move.name in CARD_COMPONENTS:
            moved_cards = cards.copy()
            moved_cards[CARD_COMPONENTS.index(move.name)] += _BUMP
            return self._evaluate(move.places, own, moved_cards)

        bumped, factor = move.bumped, np.expm1(_BUMP)
        cell, size = self._cell[move.slots[bumped]], self._size[move.slots[bumped]]
        if move.name == "latency":
            own[bumped, FIXED] += factor * np.exp(cells[COMPONENTS.index("latency"), cell])
        elif move.name == "copy":
            own[bumped, FIXED] += factor * np.exp(cells[COMPONENTS.index("copy"), cell]) * size
        else:
            own[bumped, _COLUMNS[move.name]] *= 1.0 + factor
        return self._evaluate(move.places, own, cards)

    def fit(
        self,
        used: BoolArray,
        start: Values | None = None,
        steps: int = STEPS,
        slopes: sparse.csr_matrix | None = None,
    ) -> Fit:
        """Return the effects that fit the used observations, (n,), best.

        Args:
            used: the observations that count.
            start: the effects to begin with, 0 where not given.
            steps: most steps.
            slopes: the `derivatives` of the used observations at `start`, if they are known.
        """
        weights, moves = self.weights(used), self._moves(used)
        effects = self._vector({} if start is None else start)
        cells, cards, found, cost, scaled = self._state(effects, weights)
        damping, done = 1e-3, 0
        for done in range(1, steps + 1):
            if slopes is None or done > 1:
                slopes = self._slopes(moves, cells, cards, found)
            robust = (weights * np.minimum(1.0, HUBER / np.maximum(scaled, 1e-9))).ravel()
            gaps = self._gaps(found, weights).ravel()
            curvature = slopes.T @ sparse.diags(robust) @ slopes
            gradient = slopes.T @ (robust * gaps) + self.precision * effects

            for _ in range(8):
                added = self.precision * (1.0 + damping) + damping * curvature.diagonal()
                step = _solved(sparse.csc_matrix(curvature + sparse.diags(added)), -gradient)
                trial = effects + np.clip(step, -1.5, 1.5)
                state = self._state(trial, weights)
                if state[3] < cost:
                    break
                damping = max(10.0 * damping, 1e-3)
            else:
                break

            gain = cost - state[3]
            effects, (cells, cards, found, cost, scaled) = trial, state
            damping = max(damping / 3.0, 1e-4)
            if gain < ENOUGH * cost:
                break
        return Fit(dict(zip(self.names, effects.tolist(), strict=True)), cost, done)

    def _state(
        self, effects: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, float, FloatArray]:
        # Logarithms of cells and cards, predictions, the sum to minimise, and absolute residuals in deviations.
        cells, cards = self._logs(effects)
        found = self._predict(cells, cards)
        scaled = np.abs(self._gaps(found, weights)) * np.sqrt(weights)
        costs = np.where(scaled < HUBER, scaled**2, 2.0 * HUBER * scaled - HUBER**2)
        return cells, cards, found, float(costs.sum() + self.precision @ effects**2), scaled

    def _gaps(self, found: FloatArray, weights: FloatArray) -> FloatArray:
        # Predictions less measurements, (2, n); 0 where a row has no weight.
        return np.where(weights > 0.0, found - np.nan_to_num(self.measured), 0.0)

    def supported(self, values: Values, used: BoolArray) -> Values:
        """Return the effects that any of the used observations supports."""
        cells = np.zeros(len(self.cells), dtype=bool)
        cells[self._cell[used[self._row]]] = True
        cards = np.zeros(len(self.cards), dtype=bool)
        cards[self._which[used]] = True
        members = np.concatenate([np.tile(cells, len(COMPONENTS)), np.tile(cards, len(CARD_COMPONENTS))])
        support = np.bincount(self._design[members].indices, minlength=len(self.names))
        return {name: value for name, value in values.items() if support[self.names[name]]}

    def information(self, fit: Fit, used: BoolArray) -> tuple[tuple[str, ...], FloatArray]:
        """Return the records, and the information of each on each effect, shape (records, effects)."""
        slopes = self.derivatives(fit.effects, used)
        squares = slopes.multiply(slopes).multiply(self.weights(used).ravel()[:, None]).tocsr()
        names, number = np.unique(self.records, return_inverse=True)
        both = np.concatenate([number, number])
        shape = len(names), len(both)
        adder = sparse.csr_matrix((np.ones(len(both)), (both, np.arange(len(both)))), shape=shape)
        return tuple(names.tolist()), np.asarray((adder @ squares).todense())


def _solved(matrix: sparse.csc_matrix, right: FloatArray) -> FloatArray:
    # The solution of a symmetric positive definite system, by a factorisation that keeps most of its zeros.
    options: Mapping[str, object] = {"SymmetricMode": True}
    factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    return np.asarray(factors.solve(right), dtype=np.float64)


def _matrix(entries: tuple[list[int], list[int], list[float]], rows: int, columns: int) -> sparse.csr_matrix:
    members, effects, factors = entries
    return sparse.csr_matrix((factors, (members, effects)), shape=(rows, columns))
