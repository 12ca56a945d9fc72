"""A weight-transfer backend that reads a checkpoint from the disk: a vLLM general plugin, for engines without a GPU.

vLLM's own backends move device memory (`ipc`, `nccl`). This one only differs in where the tensors come from: endpoints,
session, layerwise reload and order checks are the release's own. It is there where REPRO_TRANSFER asks for it, reads
from the folder that REPRO_CHECKPOINTS names, and is chosen by `--weight-transfer-config '{"backend": "checkpoint"}'`.
An engine that was not asked for it imports nothing of weight transfer, which takes Ray with it in some releases.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path


def apply():
    """Register the backend in this process."""
    if os.environ.get("REPRO_TRANSFER") != "checkpoint":
        return
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if "checkpoint" not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine("checkpoint", _engine())


def read(folder, scaled=None):
    """Names and tensors of a checkpoint; those named in `scaled` are multiplied by what stands there."""
    from safetensors.torch import load_file

    tensors = load_file(Path(folder) / "model.safetensors")
    return [(name, tensor * (scaled or {}).get(name, 1)) for name, tensor in sorted(tensors.items())]


def _engine():
    from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
    from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine

    @dataclass
    class InitInfo(WeightTransferInitInfo):
        """Nothing is needed."""

    @dataclass
    class UpdateInfo(WeightTransferUpdateInfo):
        """Which checkpoint to load, by the name of its folder."""

        checkpoint: str
        scaled: dict = field(default_factory=dict)
        """Tensors to multiply, and by what: for weights that are wrong on purpose."""
        renamed: dict = field(default_factory=dict)
        """Tensors to send under another name, which the model may not know."""

    class CheckpointWeightTransferEngine(IPCWeightTransferEngine):
        """Start and finish as of the release's `ipc` engine; receives from the disk."""

        init_info_cls = InitInfo
        update_info_cls = UpdateInfo

        def init_transfer_engine(self, init_info):
            """Nothing is to be agreed on."""

        def receive_weights(self, update_info):
            """Load the tensors."""
            if os.sep in update_info.checkpoint:
                raise ValueError("`checkpoint` is the name of a folder, without a path")
            weights = read(Path(os.environ["REPRO_CHECKPOINTS"]) / update_info.checkpoint, update_info.scaled)
            self.model.load_weights([(update_info.renamed.get(name, name), tensor) for name, tensor in weights])

    return CheckpointWeightTransferEngine
