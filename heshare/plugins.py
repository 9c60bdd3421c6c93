"""Plugins: the modules that register a policy, a way of sharing a GPU or a kind of workload.

`heshare.policies.registry` has the paper's policies and those of imported modules. Code that takes a policy's name from
outside (the API, the command line, sweeps, the executor) imports the registry from here.
"""

# ruff: noqa: F401 (imported so that they register)
from heshare.plus import heshare_plus_policy, online
from heshare.plus.marginal import marginal_policy
from heshare.policies import registry
from heshare.policies.registry import canonical, make, policies, title
from heshare.systems import device_models
from heshare.systems.batch_dvfs import policy as batch_dvfs
from heshare.systems.eaco import policy as eaco
from heshare.systems.fikit import policy as fikit
from heshare.systems.gavel import policy as gavel
from heshare.systems.miso import policy as miso
from heshare.systems.miso import static_partitions
from heshare.systems.morak import policy as morak
from heshare.systems.mu_serve import policy as mu_serve
from heshare.systems.power_flow import policy as power_flow
from heshare.systems.pwr import policy as pwr
from heshare.systems.shared import exclusive

__all__ = ["canonical", "make", "policies", "registry", "title"]
