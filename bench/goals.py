"""What accuracy goals cost: `python bench/goals.py rec.onnx rec.npz --backend cpu-bf16 --min-snr 30`.

Compiles a model for a backend as it is, with the goal and with everything high, and prints a row of a table: SNR,
nodes raised, runs that the search took, casts, and speed as a multiple of ONNX Runtime's in float32 (the least of the
times of each, taken in turn).
"""

import argparse
import time

import dovetail
import onnxruntime as ort


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("data", help=".npz with the inputs")
    parser.add_argument("--backend", default="cpu-bf16")
    parser.add_argument("--min-snr", type=float, default=30)
    parser.add_argument("--turns", type=int, default=30)
    return parser.parse_args()


def casts(compiled):
    return sum(node.op_type == "Cast" for node in compiled.model.nodes())


def main():
    args = parse()
    plain = dovetail.compile(args.model, args.backend, data=args.data)
    high = dovetail.compile(args.model, args.backend, data=args.data, high="*")
    start = time.perf_counter()
    goal = dovetail.compile(args.model, args.backend, data=args.data, min_snr=args.min_snr)
    searched = time.perf_counter() - start
    from dovetail_runtime.data.batches import batches

    feeds = next(batches(dovetail.open(args.model), args.data))[0]
    session = ort.InferenceSession(args.model)
    runs = {
        "float32": lambda: session.run(None, feeds),
        **{name: lambda it=it: it.run(feeds) for name, it in (("plain", plain), ("goal", goal), ("high", high))},
    }
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(args.turns):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            least[name] = min(least[name], time.perf_counter() - start)
    found = goal.plan.summary["accuracy"]
    snr = [f"{it.verification.worst_snr_db:.1f}" for it in (plain, goal, high)]
    heads = "model, backend, SNR plain, goal, high, raised, runs, s, casts plain, goal, speed plain, goal, high"
    print("| " + heads.replace(", ", " | ") + " |")
    print("|---" * 13 + "|")
    ratios = [f"{least['float32'] / least[name]:.2f}" for name in ("plain", "goal", "high")]
    raised = f"{len(found['raised'])} of {len(goal.plan.nodes)}"
    cells = [
        args.model,
        args.backend,
        *snr,
        raised,
        found["runs"],
        f"{searched:.0f}",
        casts(plain),
        casts(goal),
        *ratios,
    ]
    print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
