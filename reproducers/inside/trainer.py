"""A trainer: a process that holds a checkpoint on a GPU and offers it to an engine; run by the engine's interpreter.

    python trainer.py BACKEND

It reads orders as lines of JSON and answers each with a line of JSON; it ends with its input. `connect` (nccl: `port`)
joins the engine's group as rank 0; `offer` (`folder`, `scaled`, `renamed`) answers with the `update_info` of
`/update_weights` and then sends. With `ipc` the engine shares the first GPU and reads the trainer's memory; with `nccl`
the trainer is on the second GPU and broadcasts.
"""

import base64
import json
import os
import pickle
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).with_name("plugin")))
from vllm_rl_repro_transfer import read


def offered(tensors):
    """The part of the update info that both backends have."""
    return {
        "names": [name for name, _ in tensors],
        "dtype_names": [str(tensor.dtype).removeprefix("torch.") for _, tensor in tensors],
        "shapes": [list(tensor.shape) for _, tensor in tensors],
    }


class Ipc:
    """Memory on the engine's own GPU, handed over as CUDA IPC handles; it stays there until the next offer."""

    device = 0

    def connect(self, order):
        """Nothing is to be agreed on."""

    def info(self, tensors):
        """Handles, pickled as the HTTP endpoint wants them."""
        from torch.multiprocessing.reductions import reduce_tensor

        uuid = str(torch.cuda.get_device_properties(self.device).uuid)
        handles = [{uuid: reduce_tensor(tensor)[1]} for _, tensor in tensors]
        return offered(tensors) | {"ipc_handles_pickled": base64.b64encode(pickle.dumps(handles)).decode()}

    def send(self, tensors):
        """The engine reads them itself."""


class Nccl:
    """Memory on a GPU of its own, broadcast tensor by tensor."""

    device = 1

    def connect(self, order):
        """Join as rank 0 of two; comes back when the engine's worker has joined."""
        from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator
        from vllm.distributed.utils import StatelessProcessGroup

        group = StatelessProcessGroup.create(host="127.0.0.1", port=order["port"], rank=0, world_size=2)
        self.group = PyNcclCommunicator(group, device=self.device)

    def info(self, tensors):
        """What will be broadcast, in this order."""
        return offered(tensors)

    def send(self, tensors):
        """Broadcast; comes back when the engine has taken the last one."""
        for _, tensor in tensors:
            self.group.broadcast(tensor, src=0, stream=torch.cuda.current_stream())
        torch.cuda.synchronize()


def say(answer):
    """One line of JSON to whoever gave the order."""
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM logs to the standard output
    trainer = {"ipc": Ipc, "nccl": Nccl}[sys.argv[1]]()
    torch.cuda.set_device(trainer.device)
    torch.zeros(1, device="cuda")
    say("ready")
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "connect":
            trainer.connect(order)
            say("connected")
            continue
        held = [(order["renamed"].get(name, name), t.cuda()) for name, t in read(order["folder"], order["scaled"])]
        held.sort(key=lambda pair: pair[0] in order["renamed"].values())  # the unknown one last
        torch.cuda.synchronize()
        say(trainer.info(held))
        trainer.send(held)
