"""Fixes proposed for vLLM, and shipped fixes taken out again: a vLLM general plugin, loaded by every engine process.

REPRO_FIX names the fix (`45326:proposed`), or several with commas between, that are loaded. Which of them are on is
read from the file REPRO_FIX_SWITCH at each call of what they patch, so that one engine can be as released, with a fix,
and with one taken out, one after another; without that file all are. Each process that has loaded them leaves a file in
the folder REPRO_FIX_REPORTS, so that the kit can tell a fix that was loaded from one that was not. A release that lacks
what a fix patches ends the start with one line that says so.
"""

import asyncio
import functools
import importlib
import os
from pathlib import Path


class FixCannotBeAppliedError(RuntimeError):
    """The release lacks what the fix patches."""


def _the(module, *names):
    """The object that a fix patches, as its owner and its name."""
    try:
        owner = importlib.import_module(module)
        for name in names[:-1]:
            owner = getattr(owner, name)
        getattr(owner, names[-1])
    except (ImportError, AttributeError) as error:
        import vllm

        raise FixCannotBeAppliedError(
            f"the fix {os.environ['REPRO_FIX']} cannot be applied to vLLM {vllm.__version__}: "
            f"it has no {module}.{'.'.join(names)}"
        ) from error
    return owner, names[-1]


def _switched_on():
    """The names of the fixes that are on at this moment."""
    switch = os.environ.get("REPRO_FIX_SWITCH")
    text = Path(switch).read_text() if switch else os.environ["REPRO_FIX"]
    return set(text.split(","))


def _wrap(is_on, wrapper, module, *names):
    """Replace a function by one that is given the original as its first argument; while the fix is off, by nothing."""
    owner, name = _the(module, *names)
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*args, **kwargs):
        return wrapper(original, *args, **kwargs) if is_on() else original(*args, **kwargs)

    setattr(owner, name, replaced)


def abort_while_asleep(is_on):
    """#45326 as proposed: a request that comes while the engine sleeps at level 1 or more ends at once with abort."""
    _the("vllm.v1.engine.core", "EngineCoreProc", "_send_abort_outputs_to_client")

    def add_request(original, core, request, *args, **kwargs):
        if core.model_executor.is_sleeping:
            return core._send_abort_outputs_to_client([request.request_id], request.client_index)
        return original(core, request, *args, **kwargs)

    _wrap(is_on, add_request, "vllm.v1.engine.core", "EngineCoreProc", "add_request")


def say_whether_it_happened(is_on):
    """#45518 as proposed: the answers of /sleep and /wake_up say whether a transition happened.

    A higher level escalates (here by waking up in between), an equal or lower one does nothing; of two at once
    exactly one is real. A pause is no sleep: the sleep after it is real.
    """
    from fastapi.responses import JSONResponse

    module, _ = _the("vllm.entrypoints.serve.dev.sleep.api_router", "router")
    routes = {route.path: route for route in module.router.routes}
    state = {"level": None, "lock": asyncio.Lock()}

    async def sleep(original, raw_request, level=1, mode="abort"):
        async with state["lock"]:
            current = state["level"]
            if current is not None and level <= current:
                return JSONResponse({"status": "sleeping", "level": current, "already_sleeping": True})
            if current:
                await module.engine_client(raw_request).wake_up(None)
            await original(raw_request, level, mode)
            state["level"] = level
            return JSONResponse({"status": "sleeping", "level": level, "already_sleeping": False})

    async def wake_up(original, raw_request):
        engine = module.engine_client(raw_request)
        tags = raw_request.query_params.getlist("tags") or None
        async with state["lock"]:
            if not await engine.is_sleeping():
                return JSONResponse({"status": "awake", "tags": tags, "already_awake": True})
            await original(raw_request)
            asleep = await engine.is_sleeping()
            state["level"] = state["level"] if asleep else None
            return JSONResponse({"status": "sleeping" if asleep else "awake", "tags": tags, "already_awake": False})

    for path, wrapper in (("/sleep", sleep), ("/wake_up", wake_up)):
        routes[path].endpoint = _endpoint(is_on, wrapper, routes[path].endpoint, state)


def _endpoint(is_on, wrapper, original, state):
    """An endpoint with the parameters of the original, so that the server checks them as ever."""

    @functools.wraps(original)
    async def endpoint(**given):
        if is_on():
            return await wrapper(original, **given)
        state["level"] = None  # what is called meanwhile is not followed
        return await original(**given)

    return endpoint


def resume_after_any_wake(is_on):
    """#44483 undone: the scheduler resumes after a partial wake-up, as it did up to 0.23.0."""

    def wake_up(original, core, tags=None):
        answer = original(core, tags)
        core.resume_scheduler()
        return answer

    _the("vllm.v1.engine.core", "EngineCore", "resume_scheduler")
    _wrap(is_on, wake_up, "vllm.v1.engine.core", "EngineCore", "wake_up")


def keep_does_not_freeze(is_on):
    """#52144 undone: a pause with mode keep no longer stops the requests in flight, and none refuses new ones.

    The 503 of a paused engine exists from 0.33.0 on; where a release has none, only the first is undone.
    """
    owner, _ = _the("vllm.v1.core.sched.interface", "PauseState", "PAUSED_NEW")
    _the("vllm.v1.core.sched.interface", "PauseState", "PAUSED_ALL")

    def set_pause_state(original, scheduler, pause_state):
        return original(scheduler, owner.PAUSED_NEW if pause_state == owner.PAUSED_ALL else pause_state)

    _wrap(is_on, set_pause_state, "vllm.v1.core.sched.scheduler", "Scheduler", "set_pause_state")
    core, _ = _the("vllm.v1.engine.core", "EngineCoreProc", "add_request")
    if hasattr(core, "_reject_add_while_paused"):
        _wrap(is_on, lambda *_: False, "vllm.v1.engine.core", "EngineCoreProc", "_reject_add_while_paused")


def metric_awake_after_any_wake(is_on):
    """The metric of a partial wake-up undone: it says awake after any wake-up, as it did up to 0.30.0."""

    async def wake_up(original, llm, tags=None):
        answer = await original(llm, tags)
        if llm.logger_manager is not None:
            llm.logger_manager.record_sleep_state(0, 0)
        return answer

    _the("vllm.v1.metrics.loggers", "StatLoggerManager", "record_sleep_state")
    _wrap(is_on, wake_up, "vllm.v1.engine.async_llm", "AsyncLLM", "wake_up")


def sleep_without_waiting(is_on):
    """#45552 and #45363 undone: the worker unmaps its memory while the device still works, as it did up to 0.24.0."""
    import torch

    def sleep(original, worker, *args, **kwargs):
        waiting = torch.accelerator.synchronize

        def not_the_first_time(*_):
            torch.accelerator.synchronize = waiting

        torch.accelerator.synchronize = not_the_first_time
        try:
            return original(worker, *args, **kwargs)
        finally:
            torch.accelerator.synchronize = waiting

    _wrap(is_on, sleep, "vllm.v1.worker.gpu_worker", "Worker", "sleep")
    owner, _ = _the("vllm.v1.worker.gpu_worker", "Worker", "sleep")
    if hasattr(owner, "synchronize_device"):  # from 0.29 on a finished pause waits for the device as well
        _wrap(is_on, lambda *_: None, "vllm.v1.worker.gpu_worker", "Worker", "synchronize_device")


def resume_heeds_the_memory(is_on):
    """Resume while asleep, as it could be: the gate stays shut until all memory is mapped; the wake-up opens it."""

    def resume_scheduler(original, core, *args):
        return None if core.model_executor.is_sleeping else original(core, *args)

    _wrap(is_on, resume_scheduler, "vllm.v1.engine.core", "EngineCore", "resume_scheduler")


def wake_what_sleeps(is_on):
    """#45616's family, as it could be: of the tags of a wake-up, those that are awake already are passed over."""

    def wake_up(original, executor, tags=None):
        asleep = None if tags is None else [tag for tag in tags if tag in executor.sleeping_tags]
        return None if asleep == [] else original(executor, asleep)

    _wrap(is_on, wake_up, "vllm.v1.executor.abstract", "Executor", "wake_up")


def refuse_unknown_tags(is_on):
    """A wake-up with an unknown tag, as it could be: refused with 400, and nothing is changed."""
    from fastapi import HTTPException

    async def wake_up(original, llm, tags=None):
        unknown = [tag for tag in tags or [] if tag not in {"weights", "kv_cache", "scheduling"}]
        if unknown:
            raise HTTPException(400, f"unknown wake-up tag {unknown[0]}: weights, kv_cache, scheduling")
        return await original(llm, tags)

    _wrap(is_on, wake_up, "vllm.v1.engine.async_llm", "AsyncLLM", "wake_up")


def sleep_through_the_engine(is_on):
    """Sleep past the engine (verl #6456), as it could be: what is asked of the workers goes through the engine."""

    async def collective_rpc(original, llm, method, timeout=None, args=(), kwargs=None):
        if method in {"sleep", "wake_up"}:
            await getattr(llm, method)(*args, **(kwargs or {}))
            return [None]
        return await original(llm, method, timeout, args, kwargs)

    _wrap(is_on, collective_rpc, "vllm.v1.engine.async_llm", "AsyncLLM", "collective_rpc")


def restore_after_a_refusal(is_on):
    """A refused weight update, as it could be: the tensors that were set aside for it are put back."""
    _the("vllm.v1.worker.gpu_worker", "Worker", "finish_weight_update")

    def update_weights(original, worker, update_info):
        was_open = worker._weight_update_active
        try:
            return original(worker, update_info)
        except Exception:
            if was_open:
                worker._weight_update_active = True
                worker.finish_weight_update()
            raise

    _wrap(is_on, update_weights, "vllm.v1.worker.gpu_worker", "Worker", "update_weights")


def keep_the_prefix_cache(is_on):
    """A sleep that drops the prefix cache undone: what was computed before it is used after it."""

    def reset(_original, _core, *_args, **_kwargs):
        return True

    _wrap(is_on, reset, "vllm.v1.engine.core", "EngineCore", "reset_prefix_cache")


FIXES = {
    "45326:proposed": abort_while_asleep,
    "45518:proposed": say_whether_it_happened,
    "44483:undo": resume_after_any_wake,
    "45585:undo": keep_the_prefix_cache,
    "45363:undo": sleep_without_waiting,
    "45552:undo": sleep_without_waiting,
    "45616:proposed": wake_what_sleeps,
    "52144:undo": keep_does_not_freeze,
    "partial-wake-metric:undo": metric_awake_after_any_wake,
    "refused-weight-update:proposed": restore_after_a_refusal,
    "resume-while-asleep:proposed": resume_heeds_the_memory,
    "unknown-wake-tag:proposed": refuse_unknown_tags,
    "verl-6456:proposed": sleep_through_the_engine,
}


def apply():
    """Load the fixes that REPRO_FIX names in this process, and report them."""
    names = os.environ.get("REPRO_FIX")
    if names is None:
        return
    loaded = {}
    for name in names.split(","):
        if name not in FIXES:
            raise FixCannotBeAppliedError(f"there is no fix {name}: there are {', '.join(FIXES)}")
        loaded.setdefault(FIXES[name], set()).add(name)  # two bugs can have the same one
    for fix, its_names in loaded.items():
        fix(lambda its_names=its_names: bool(its_names & _switched_on()))
    Path(os.environ["REPRO_FIX_REPORTS"], str(os.getpid())).write_text(names)
