"""Marginal, an online policy that is not HeShare: each task where and when it adds least to energy and waiting.

It has none of HeShare's parts (no genetic search, no plan, no batches, no MPS percentages), and its clocks follow from
the same cost.

A second that a task spends in the system costs p, in W = J / s. With N(t) tasks in the system at time t, the sum
of JCTs is the integral of N (each task counts from arrival to completion, as in Little's law), so

    cost = E + p T = integral over t of (sum over g of P_g(t) + p N(t)) dt

and p is the weight w of `heshare.lab.plus.weighted_search`: a low p leads to the end of least energy, a high one to the
end of least JCT. Idle power is left out of P_g: it is drawn whatever the policy does.

Clock. A GPU that runs the set S with q tasks queued behind it costs P(f) - P_idle + p (|S| + q) per second at clock f.
The same work takes s(f) = mean over S of t_i(f) / t_i(top) times as long as at the top clock, so the cheapest clock is

    f* = argmin (P(f) - P_idle + p (|S| + q)) s(f)

Place. D(S) is the cost until S has ended with no further start, by the steps of `heshare.lab.plus.batch_execution`,
each at its f* for q = 0, and e(S) is its end. Task i adds D(S + i) - D(S) beside S, and D(i) + p (e(S) + time of the
queued tasks) behind it. At each event, every waiting task in SPT order takes the cheapest of these places over all
GPUs. The rule is greedy: nothing is planned ahead, nothing is batched, and later arrivals are not foreseen.

Gangs. A task for k GPUs counts as one task on each of them, so that a second of it costs k p. It runs on k idle GPUs of
one type and shares none of them: D(S) takes GPUs one by one, but a neighbour of one member would slow down all of them.
If X is when the k GPUs of a type that are idle first are idle, it adds k (D(i) + p X). It takes the type where that is
least, and starts there if X = 0. Else it is queued for these GPUs, and tasks behind it in the order do not start there.
Its clock is f* for q = 0 while it runs.

No gang starves. One that has waited for as long as it takes alone has aged. Those that have aged come first, by
arrival. Such a gang starts as soon as any type has k idle GPUs. If none has, it holds the k GPUs that are idle first:
nothing else starts on them, so they become idle when their tasks end. One that finds fewer than k GPUs of a type that
no other gang holds, keeps those behind it from holding more; the others start, and then it can hold its own.

Example: two tasks with 2 and 5 iterations that take turns end after 4 and 7 s at 100 W above idle: 700 J, and at
p = 10 W another 10 (4 + 7) J.

>>> import numpy as np
>>> from heshare.lab.plus.marginal.drain_costs import drain
>>> from heshare.lab.plus.marginal.set_predictions import SetPredictions
>>> from heshare.lab.plus.marginal.set_tables import SetTables
>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> from heshare.world.workload import Workload
>>> tables = SetTables(SetPredictions(ToyPredictor(), clocks=2, price_w=10.0), (toy_gpu(),), most=2)
>>> both = tables.number(0, (Workload("mobilenet", 4), Workload("resnet18", 4)))
>>> drain(tables.arrays, both, np.array([2.0, 5.0]))
(810.0, 7.0)

Sources: energy plus flow time as one objective of online scheduling with variable speed: Albers and Fujiwara 2007,
doi:10.1145/1290672.1290686. Little's law: Little 1961, doi:10.1287/opre.9.3.383. The policy itself is ours.
"""
