"""What the Hugging Face hub says of a model without its weights: small files, and the headers of its shards.

The huggingface_hub package finds the cache, the login and the endpoint (HF_HOME, HF_TOKEN, HF_ENDPOINT) and sends the
requests. Headers are read as byte ranges: 8 bytes, then the JSON header, of each shard; a commit never changes, so they
are kept in trtspec's cache. No message repeats what the server said: a proxy may echo the request's token.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trt_spec.build.source.shards import (
    CONFIG_NAME,
    INDEX_NAME,
    SINGLE_NAME,
    check_index,
    load_weight_map,
    merge_shards,
)
from trt_spec.build.source.small_files import CHAT_TEMPLATE_NAME, NEEDED_NAMES, OPTIONAL_NAMES, load_small_files
from trt_spec.errors import EnvironmentMissing, SpecError, TrtspecError
from trt_spec.plan.model_files import ModelFiles, TensorInfo
from trt_spec.util.files import write_text_atomic
from trt_spec.util.safetensors_header import LENGTH_BYTES, TensorSpan, header_length, parse_header

ENDPOINT_VARIABLE = "HF_ENDPOINT"
DEFAULT_ENDPOINT = "https://huggingface.co"
HEADERS_FOLDER = "hub-headers"
TIMEOUT_S = 10.0
PARALLEL_REQUESTS = 8
COMMIT_SHOWN = 12
UNUSED_FILES = ("original/*",)  # Meta's repositories hold the weights a second time there

_LOGIN = "log in with `hf auth login` or set HF_TOKEN"
_CONTENT_RANGE = re.compile(r"bytes \d+-\d+/(\d+)")


@dataclass(frozen=True)
class _Hub:
    """One model on one hub, with the package that reads it; ``single`` is its file of weights if it has no index."""

    package: Any
    model_id: str
    revision: str | None
    is_offline: bool
    single: str = SINGLE_NAME

    @property
    def endpoint(self) -> str:
        return (os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT).rstrip("/")

    def url(self, name: str, revision: str | None) -> str:
        url: str = self.package.hf_hub_url(self.model_id, name, revision=revision, endpoint=self.endpoint)
        return url

    def fetch(self, name: str, revision: str | None) -> Path:
        """The local path of a small file, fetched unless cached; the folder it is in is named after the commit."""
        return Path(
            self.package.hf_hub_download(
                self.model_id,
                name,
                revision=revision,
                cache_dir=_cache_dir(),
                endpoint=self.endpoint,
                local_files_only=self.is_offline,
            )
        )


def load_hub_files(
    model_id: str, *, revision: str | None, cache_dir: Path, offline: bool, single: str = SINGLE_NAME
) -> ModelFiles:
    """Return what the hub knows of ``model_id`` (owner/name) at a revision, the main branch's newest if None.

    Weights without an index are in the file ``single``.

    ``offline`` reads the hub's cache on this machine alone, as does a hub that cannot be read now; ``origin`` says so.
    Raises SpecError for a model, revision or file that is wrong; EnvironmentMissing without the huggingface_hub
    package, and without a network or access for what is not cached.
    """
    package = _import_package()
    hub = _Hub(package, model_id, revision, offline or package.constants.HF_HUB_OFFLINE, single)
    if not hub.is_offline:
        try:
            _check_access(hub)
        except EnvironmentMissing:
            with contextlib.suppress(EnvironmentMissing):
                return _load(replace(hub, is_offline=True), cache_dir)
            raise
    return _load(hub, cache_dir)


def download_snapshot(model_id: str, revision: str | None, folder: Path, report: Callable[[str], None]) -> str:
    """Download a whole model into ``folder`` and return the commit, the revision's at this moment.

    What an earlier, interrupted call left in ``folder`` is kept and completed. Raises as ``load_hub_files`` does.
    """
    package = _import_package()
    hub = _Hub(package, model_id, revision, is_offline=False)
    with _translated(hub):
        api = package.HfApi(endpoint=hub.endpoint)
        commit: str = api.model_info(model_id, revision=revision, timeout=TIMEOUT_S).sha
        report(f"{model_id} at {commit[:COMMIT_SHOWN]} from {hub.endpoint}")
        package.snapshot_download(
            model_id, revision=commit, local_dir=folder, endpoint=hub.endpoint, ignore_patterns=list(UNUSED_FILES)
        )
    return commit


def _load(hub: _Hub, cache_dir: Path) -> ModelFiles:
    with _translated(hub):
        # By the revision's name, so that the cache learns which commit it is.
        folder = hub.fetch(CONFIG_NAME, hub.revision).parent
        for name in (*OPTIONAL_NAMES.values(), CHAT_TEMPLATE_NAME):
            _fetch_optional(hub, name, folder.name)
        index = _fetch_optional(hub, INDEX_NAME, folder.name)
        tensors = _load_tensors(hub, folder.name, index, cache_dir)
    place = "hub's cache," if hub.is_offline else "hub"
    origin = f"{place} {hub.model_id} at {folder.name[:COMMIT_SHOWN]}"
    return load_small_files(folder, reference=hub.model_id, origin=origin, tensors=tensors)


def _check_access(hub: _Hub) -> None:
    """Raise unless the hub answers for the model: hf_hub_download tries long and tells little of what went wrong."""
    with _translated(hub):
        metadata = hub.package.get_hf_file_metadata(hub.url(CONFIG_NAME, hub.revision), timeout=TIMEOUT_S)
    if metadata.commit_hash is None:
        raise EnvironmentMissing(
            f"{hub.endpoint} does not answer like a Hugging Face hub.",
            remedy=f"Correct {ENDPOINT_VARIABLE} or the proxy settings. {_provide(hub)}",
        )


def _import_package() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError:
        raise EnvironmentMissing(
            "Reading a model from the hub needs the huggingface_hub package.",
            remedy="Run: pip install 'trtspec[hub]'; or name a local folder with the model's small files.",
        ) from None
    huggingface_hub.utils.disable_progress_bars()
    return huggingface_hub


def _cache_dir() -> Path | None:
    """Where huggingface_hub keeps files, by the environment of now (it reads it at import); None is its default."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    home = os.environ.get("HF_HOME")
    return Path(home).expanduser() / "hub" if home else None


def _fetch_optional(hub: _Hub, name: str, commit: str) -> Path | None:
    errors = hub.package.errors
    try:
        return hub.fetch(name, commit)
    except errors.LocalEntryNotFoundError:
        if hub.is_offline:
            return None  # not cached, or not there
        raise
    except errors.EntryNotFoundError:
        return None


def _load_tensors(hub: _Hub, commit: str, index: Path | None, cache_dir: Path) -> Mapping[str, TensorInfo] | None:
    """Tensors of every shard by name; None if offline and never read before."""
    kept = cache_dir / HEADERS_FOLDER / hub.model_id.replace("/", "--") / f"{commit}.json"
    if (tensors := _load_kept(kept)) is not None:
        return tensors
    if hub.is_offline:
        return None
    weight_map = load_weight_map(index) if index is not None else None
    shards = sorted(set(weight_map.values())) if weight_map is not None else [hub.single]
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        headers = list(pool.map(lambda shard: _load_remote_header(hub, shard, commit), shards))
    spans = merge_shards({Path(shard): header for shard, header in zip(shards, headers, strict=True)})
    if index is not None and weight_map is not None:
        check_index(index, weight_map, spans)
    tensors = {name: TensorInfo(span.dtype, span.shape) for name, (_, span) in spans.items()}
    _keep(kept, tensors)
    return tensors


def _load_kept(path: Path) -> Mapping[str, TensorInfo] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {name: TensorInfo(dtype, tuple(shape)) for name, (dtype, shape) in document.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None  # a cache: whatever is wrong with it, it is made again


def _keep(path: Path, tensors: Mapping[str, TensorInfo]) -> None:
    with contextlib.suppress(OSError):  # planning goes on where the cache cannot be written
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path, json.dumps({name: (info.dtype, info.shape) for name, info in tensors.items()}))


def _load_remote_header(hub: _Hub, shard: str, commit: str) -> dict[str, TensorSpan]:
    url = hub.url(shard, commit)
    source = f"{shard} of {hub.model_id} on the hub"
    try:
        prefix, size = _read_range(hub, url, 0, LENGTH_BYTES)
        raw, _ = _read_range(hub, url, LENGTH_BYTES, header_length(source, prefix, size))
    except hub.package.errors.EntryNotFoundError:
        raise SpecError(
            f"{hub.model_id} has no {shard} on the hub, expected safetensors weights.",
            remedy="Choose a repository with safetensors files, or convert the model and name its local folder.",
        ) from None
    return parse_header(source, raw, size)


def _read_range(hub: _Hub, url: str, begin: int, count: int) -> tuple[bytes, int]:
    """``count`` bytes of a remote file from ``begin`` on, and the size of the whole file in bytes."""
    with _open(hub, url, f"bytes={begin}-{begin + count - 1}") as response:
        if response.status_code >= 400:
            _body(response)
            hub.package.utils.hf_raise_for_status(response)
        total = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if response.status_code != 206 or total is None:
            # Reading on would fetch the whole shard.
            raise EnvironmentMissing(
                f"{hub.endpoint} does not serve byte ranges, so headers cannot be read without the weights.",
                remedy=f"Correct {ENDPOINT_VARIABLE}. {_provide(hub)}",
            )
        body, size = _body(response), int(total.group(1))
    if len(body) != min(count, max(size - begin, 0)):
        raise EnvironmentMissing(
            f"{hub.endpoint} sent {len(body)} of {count} bytes of {url.rpartition('/')[2]}.", remedy="Run it again."
        )
    return body, size


@contextlib.contextmanager
def _open(hub: _Hub, url: str, byte_range: str) -> Iterator[Any]:
    """A response whose body is not read yet; huggingface_hub's session is httpx's from 1.0 on, before requests'."""
    utils = hub.package.utils
    headers = {**utils.build_hf_headers(), "Range": byte_range, "Accept-Encoding": "identity"}
    session = utils.get_session()
    if callable(getattr(session, "stream", None)):
        with session.stream("GET", url, headers=headers, timeout=TIMEOUT_S, follow_redirects=True) as response:
            yield response
    else:
        with session.get(url, headers=headers, timeout=TIMEOUT_S, stream=True) as response:
            yield response


def _body(response: Any) -> bytes:
    body: bytes = response.read() if hasattr(response, "read") else response.content
    return body


@contextlib.contextmanager
def _translated(hub: _Hub) -> Iterator[None]:
    """Raise what huggingface_hub and its HTTP client raise as one of ours, in our words."""
    errors = hub.package.errors
    try:
        yield
    except TrtspecError:
        raise
    # httpx's errors are no OSError; HfHubHTTPError has their base class among its own.
    except (OSError, errors.HFValidationError, errors.EntryNotFoundError, *errors.HfHubHTTPError.__bases__) as error:
        raise _translate(hub, error) from None


def _translate(hub: _Hub, error: Exception) -> TrtspecError:
    errors, model, page = hub.package.errors, hub.model_id, f"{hub.endpoint}/{hub.model_id}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        return EnvironmentMissing(
            f"The hub gives {model} only to those whom its owner lets in (gated).",
            remedy=f"Ask for access on {page}, then {_LOGIN}.",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return SpecError(f"{model} has no revision {hub.revision!r} on the hub.", remedy=f"Choose one from {page}.")
    if isinstance(error, errors.RepositoryNotFoundError) and status == 404:
        return SpecError(f"The hub has no model {model}.", remedy=f"Correct the id; see {hub.endpoint}/models.")
    if status in (401, 403):
        return EnvironmentMissing(
            f"The hub refuses {model} to this login (HTTP {status}): it does not exist, or is private or gated.",
            remedy=f"Correct the id, or {_LOGIN}.",
        )
    if isinstance(error, errors.HFValidationError):
        return SpecError(f"{model!r} at revision {hub.revision!r} is no hub id.", remedy="Write owner/name.")
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return SpecError(
            f"{model} has no {CONFIG_NAME} on the hub, so it is no Transformers checkpoint.",
            remedy="Choose the original repository of the model, not one with GGUF files.",
        )
    if hub.is_offline:
        return EnvironmentMissing(f"{model} is not in the hub's cache on this machine.", remedy=_provide(hub))
    reason = f"HTTP {status}" if status is not None else "no connection"
    return EnvironmentMissing(f"Cannot read {model} from {hub.endpoint} ({reason}).", remedy=_provide(hub))


def _provide(hub: _Hub) -> str:
    """What to do without a network: the files, where they go, and how to name them."""
    folder = f"./{hub.model_id.rpartition('/')[2]}"
    return (
        f"Put {', '.join(NEEDED_NAMES)} (as far as the model has them) of {hub.model_id} into a folder and write "
        f"model: {folder}; with a network: hf download {hub.model_id} --include '*.json' --local-dir {folder}."
    )
