"""Which devices this machine has, and whether they are fit for a stage.

NVML (`probe`) + CUDA_VISIBLE_DEVICES (`masks`) -> Inventory (`model`)
Stage row -> `requirement` -> Requirement
Requirement + Inventory -> `checks` -> problems, one message per check
`verify` is the edge that runs all of it, with a kernel and an all-reduce in children (`torch_checks`, `torch_child`)
`watch` listens for Xid events during a run; `afterwards` compares the devices after it with those before
`python -m ci.devices` prints this machine. torch is never imported in this process.
"""
