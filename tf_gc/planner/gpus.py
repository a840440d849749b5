"""The cost of compressing on GPUs, by recorded throughputs."""

from tf_gc.planner.prediction import Cost, SimulatedNetwork
from tf_gc.reducers.flat_plans import AllGather
from tf_gc.reducers.hierarchical import Hierarchical, sends_least
from tf_gc.schedule import Bucket, Schedule

# Bits a second that a copy on an H200 reads and writes, and the part of it that kernels reach, by
# the bits of a code: to encode, to decode 1, 2 and 8 messages (benchmarks/results/gpu.json).
COPY_RATE = 8 * 4145.9e9
OF_COPY = {
    1: (0.962, 0.821, 0.811, 0.526),
    2: (0.948, 0.838, 0.832, 0.567),
    3: (0.901, 0.806, 0.640, 0.328),
    4: (0.715, 0.795, 0.628, 0.333),
}


def gpu_cost(copy_rate: float, schedule: Schedule, network: SimulatedNetwork) -> Cost:
    """Returns the cost of a schedule on GPUs with a rate of copies, in bits a second.

    Codecs whose kernels were not measured count as those of 4 bits.
    """
    hosts, gpus = network.hosts, len(network.devices)
    costs = [_cost_of(bucket, hosts, gpus) for bucket in schedule.buckets]
    seconds = 8 * sum(copied for copied, _ in costs) / copy_rate
    return Cost(seconds, tuple(sent for _, sent in costs))


def _cost_of(bucket: Bucket, hosts: int, gpus: int) -> tuple[float, tuple[int, int, int, int]]:
    """Returns how many bytes a GPU could copy meanwhile, and what is sent, as `Cost` has it."""
    plan, codec, n = type(bucket.reducer), bucket.reducer.codec, bucket.elements
    members, senders, in_host = hosts * gpus, gpus if hosts > 1 else 1, 0
    if plan is Hierarchical:
        # Buckets take turns among the GPUs: to a leader come gradients, from it go sums.
        in_host = 2 * bucket.dtype.size * n * (gpus - 1) // gpus
        plan, members, senders = sends_least(codec, hosts), hosts, 1
    message, total = codec.bits(1) * n / 8, codec.bits(members) * n / 8
    encode, *decode = OF_COPY.get(int(codec.bits(1)), OF_COPY[4])
    decode_all = decode[2] if members > 7 else decode[1]
    kept = 2 * codec.residual_dtype.size if codec.residual_dtype else 0  # read and written
    encoded = ((4 + kept) * n + message) / encode
    if plan is AllGather:
        copied = encoded + (4 * n + message * members) / decode_all
        sent, rounds, collectives = message * (members - 1), members - 1, 1
    else:
        # Each replica adds up and encodes one shard, and decodes the sums of all.
        shard = (4 * n / members + message) / decode_all + encoded / members
        copied = encoded + shard + (4 * n + total) / decode[0]
        # An all-to-all of all GPUs crosses the link of their host at once, a ring once.
        sent = message * senders * (members - senders) / members + total * (members - 1) / members
        rounds, collectives = members, 2
    return copied / (gpus if in_host else 1), (int(sent), rounds, collectives, in_host)
