"""Tune on several machines: a scheduler and two workers, here all on this machine.

    python examples/cluster.py examples/digits/digits.onnx examples/digits/test.npz

On a real cluster, start `dask scheduler` on one machine, `dask worker tcp://ADDRESS:8786 --resources timing=1` on each,
and give the address: `dovetail tune MODEL --data D --min-snr 30 --cluster tcp://ADDRESS:8786 -o out`. Model and journal
have to be in folders that all machines see under the same paths, and versions have to be equal.
"""

import sys

import dovetail
from distributed import LocalCluster
from dovetail_tune.cluster import connect


def main(model, data):
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, resources={"timing": 1}, dashboard_address=None)
    with cluster, connect(cluster.scheduler_address) as executors:
        # A worker that dies is replaced, and its task is sent again; the journal keeps what was tried.
        tuned = dovetail.tune(model, data=data, min_snr=30, budget=120, executor=executors)
    for row in tuned.rows():
        print(row)
    print(*tuned.notes, *tuned.lines(), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
