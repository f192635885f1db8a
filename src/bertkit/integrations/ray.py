"""Bulk embedding on Ray Data: the shards of a job as tasks of a pool of workers."""

from pathlib import Path

from bertkit.errors import DependencyError
from bertkit.search.bulk import BulkEmbedding
from bertkit.search.encoder import Encoder

try:
    import ray
    import ray.data
except ImportError as error:
    raise DependencyError("bulk embedding on Ray needs Ray Data: pip install 'bertkit[ray]'") from error


class _Worker:
    """A process that has the model, and embeds one shard after another."""

    def __init__(self, folder: str, device: str) -> None:
        self._job = BulkEmbedding(folder)
        self._encoder = Encoder.of_identity(self._job.identity, device)

    def __call__(self, batch: dict) -> dict:
        for number in batch["shard"]:
            self._job.run_shard(int(number), self._encoder)
        return batch


def run_on_ray(
    folder: str | Path, num_workers: int, *, device: str = "auto", num_cpus: float = 1, num_gpus: float = 0
) -> None:
    """Embed the shards of a job that are not finished, on the Ray cluster that this process is connected to.

    The shard of a worker that dies is embedded by another one. Called again, it continues with what is left. All
    machines need the folder of the job, the files and the model under the same paths.

    Args:
        folder: folder of a `BulkEmbedding`.
        num_workers: processes, each with the model in memory.
        device: of each worker: "auto", "cpu" or "cuda".
        num_cpus: cores of each worker.
        num_gpus: GPUs of each worker; may be a fraction.

    Raises:
        DataError: the folder holds no plan.
        ray.exceptions.RayTaskError: a shard cannot be embedded; names the reason.
    """
    pending = BulkEmbedding(folder).pending()
    if not pending:
        return
    shards = ray.data.from_items([{"shard": number} for number in pending], override_num_blocks=len(pending))
    shards.map_batches(
        _Worker,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(num_workers, len(pending))),
        fn_constructor_kwargs={"folder": str(Path(folder).resolve()), "device": device},
        num_cpus=num_cpus,
        num_gpus=num_gpus,
    ).materialize()
