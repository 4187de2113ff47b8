"""`specdec doctor`: the facts of `bench/diagnosis.py` in plain sentences, and what to do about what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specdec_lib.checkpoints.card import SHIPPED, checkpoint_names

UNKNOWN, ROUNDING = "not known without the model", "a row may differ by rounding beside other rows"
BUSY = 0.3                                         # processes per core that other programs keep busy


def told(found: Mapping[str, Any]) -> list[str]:
    """One line for each fact, then one for each remedy."""
    here, model = found["machine"], found["installed"]["model"]
    lines = [f"processor: {here['processor']}, cores: {here['cores']}, torch threads: {here['threads']}",
             f"instructions: {instructions_text(here['instructions'])}; torch's bf16 kernels: {yes(here['bf16'])}",
             f"memory: {here['memory_gib']} GiB, free: {here['free_memory_gib']} GiB",
             f"GPU: {here['gpu'] or 'none that torch can use'}; device and dtype by default: {here['device']},"
             f" {here['dtype']}",
             f"load of the last minute: {here['load']} processes on {here['cores']} cores", bandwidth_text(found),
             f"versions: {', '.join(f'{name} {number}' for name, number in found['installed']['versions'].items())}",
             model_text(model), speed_text(found), invariance_text(model, here),
             four_bit_text(here), four_bit_invariance_text(model),
             f"trained drafters: {', '.join(found['installed']['checkpoints']) or 'none'}"]
    needed = list(remedies(found))
    return lines + [f"to do: {remedy}" for remedy in needed] + ["nothing is missing"] * (not needed)


def bandwidth_text(found: Mapping[str, Any]) -> str:
    speed = found["measured"]["bytes_per_second"]
    return ("memory bandwidth: not measured" if speed is None else
            f"memory bandwidth: {speed / 1e9:.1f} GB/s, measured by reading with {found['machine']['threads']} threads")


def model_text(model: Mapping[str, Any]) -> str:
    if not model["present"]:
        return f"target {model['name']}: not on this disk"
    read = f", {model['bytes_per_forward'] / 1e6:.0f} MB read by a forward"
    return f"target {model['name']}: {model['parameters'] / 1e6:.1f} million weights{read}, run by {model['decoder']}"


def speed_text(found: Mapping[str, Any]) -> str:
    speed = found["predicted"]["plain_tokens_per_second"]
    return ("plain decoding: no prediction without the bandwidth and the model" if speed is None else
            f"plain decoding, predicted: {speed:.0f} tokens/s, if all time went into reading the weights at this"
            " bandwidth")


def invariance_text(model: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Whether rows are batch invariant, in one line."""
    if model["batch_invariant"] is None:
        return f"equal bits: {UNKNOWN}"
    if not model["batch_invariant"]:
        return f"equal bits: not promised in {here['dtype']} on {here['device']}, {ROUNDING}"
    return f"equal bits: {same_bits(model)}"


def same_bits(facts: Mapping[str, Any]) -> str:
    by = "compiled attention" if facts["compiled_attention"] else "torch's kernels, which take longer"
    return f"a row has the same bits alone and beside others, with {by}"


def four_bit_invariance_text(model: Mapping[str, Any]) -> str:
    """Whether rows are batch invariant with `--dtype int4`, in one line."""
    facts = model["four_bit"]
    if facts is None:
        said = "--dtype int4 does not run this model here" if model["present"] else UNKNOWN
    else:
        said = same_bits(facts) if facts["batch_invariant"] else f"not promised, {ROUNDING}"
    return f"equal bits with --dtype int4: {said}"


def four_bit_text(here: Mapping[str, Any]) -> str:
    """Whether `--dtype int4` can run, in one line."""
    if here["compiler"] is None:
        return "4-bit weights: --dtype int4 needs a C compiler, such as gcc"
    if here["four_bit_tile"] is None:
        return f"4-bit weights: --dtype int4 cannot run, {here['compiler']} compiles no C code for this machine"
    return (f"4-bit weights: --dtype int4 runs on the CPU, in C code that {here['compiler']} compiles once, with"
            f" {here['four_bit_tile']}")


def remedies(found: Mapping[str, Any]) -> Iterator[str]:
    """What to do about what is missing or in the way, one sentence each."""
    here, installed = found["machine"], found["installed"]
    model = installed["model"]
    for extra, packages in installed["missing"].items():
        wanted = f"-e '.[{extra}]'" if extra else "-e ."
        yield f"install {', '.join(packages)} with `pip install -c constraints.txt {wanted}`"
    if not model["present"]:
        yield (f"`make model` fetches {model['name']} once (93 MB), and so does every command that needs it"
               if model["name"] == "smollm2-135m" else
               f"give --target a local folder, or run a command with --target {model['name']}, which fetches it")
    if here["load"] is not None and here["load"] > BUSY * here["cores"]:
        yield ("other programs use this machine, so the bandwidth here is what they leave: measure when it is idle, or"
               " with --threads 1")
    if here["dtype"] == "float32" and here["device"] == "cpu":
        yield "this processor has no bf16 kernels: float32 is taken by default, at twice the bytes a token"
    if here["compiler"] is None and could_be_compiled(model, here):
        yield "install a C compiler, such as gcc: linear layers and attention, once compiled, take less time" + (
            "" if model["batch_invariant"] else ", and give a row the same bits beside other rows")
    if here["gpu_present"] and here["gpu"] is None:
        yield "this machine has an NVIDIA GPU and this build of torch cannot use it: install a CUDA build of torch"
    lost = sorted({*checkpoint_names(SHIPPED)} - {*installed["checkpoints"]})
    if not installed["checkpoints"]:
        yield "no trained drafter is here: `specdec train eagle` makes one" + (
            "; leave --checkpoints out for the shipped ones" if lost else "")


def could_be_compiled(model: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Whether our decoder runs this model on a CPU that has the vector instructions, with attention of torch's."""
    return here["device"] == "cpu" and model["compiled_attention"] is False and bool(
        (here["instructions"] or {}).get("avx2"))          # every processor with AVX-512 has it


def instructions_text(found: Mapping[str, bool] | None) -> str:
    if found is None:
        return "the system does not say"
    return ", ".join(f"{name} {yes(there)}" for name, there in found.items())


def yes(value: object) -> str:
    return "yes" if value else "no"
