"""The device library as bitcode: what the wheel says of it, and that it is all there."""

import re
from pathlib import Path

import pytest

import rushmem

LIB = Path(rushmem.__file__).parent / "lib"


def functions():
    if not (LIB / "rushmem_functions.json").exists():
        with pytest.raises(rushmem.Unsupported, match="apt-get install clang"):
            rushmem.bitcode()
        pytest.skip("this wheel was built without clang")
    return rushmem.device_functions()


def test_bitcode_is_for_the_gpu_asked_for_or_older():
    functions()
    names = {capability: rushmem.bitcode(capability).name for capability in (80, 86, 89, 90, 100)}
    assert names == {
        80: "rushmem_device.sm_80.bc", 86: "rushmem_device.sm_80.bc", 89: "rushmem_device.sm_80.bc",
        90: "rushmem_device.sm_90.bc", 100: "rushmem_device.sm_90.bc",
    }
    with pytest.raises(rushmem.Unsupported, match="sm_75"):
        rushmem.bitcode(75)


@pytest.mark.parametrize("capability", [80, 90])
def test_the_bitcode_has_every_function(capability):
    code = rushmem.bitcode(capability).read_bytes() if functions() else b""
    assert code[:4] == b"BC\xc0\xde"
    symbols = [row["symbol"].encode() for row in functions()] + [b"rushmem_state"]
    assert len(set(symbols)) == len(symbols) > 300
    assert [symbol for symbol in symbols if symbol not in code] == []
    assert b"nvptx64-nvidia-cuda" in code and b"x86_64" not in code and b"device/src" not in code
    # What would bind it to one GPU or one compiler, and what libNVVM refuses.
    assert not [word for word in (b"target-cpu", b"nvvm-reflect-ftz", b"llvm.used") if word in code]


def test_each_operation_has_the_scopes_of_its_kind():
    scopes = {
        "pure": {"thread"}, "each": {"thread", "program"}, "one": {"thread", "program"}, "all": {"thread", "program"},
        "group": {"thread", "warp", "block", "program"},
    }
    found = {}
    for row in functions():
        found.setdefault((row["operation"], row["element"], row["kind"]), set()).add(row["scope"])
        assert all(kind in "i32 u32 i64 u64 f32 f64 u8 u16 ptr".split() for kind, _ in row["arguments"])
    assert all(there == scopes[kind] for (_, _, kind), there in found.items())
    assert {name for name, _, _ in found} >= {
        "my_pe", "n_pes", "ptr", "p", "g", "put", "get", "put_nbi", "get_nbi", "put_signal", "signal_op", "signal_wait_until",
        "wait_until", "test", "fence", "quiet", "sync_all", "barrier_all", "team_sync", "atomic_fetch_add", "atomic_compare_swap",
    }


def test_comparisons_and_signals_have_the_headers_numbers():
    functions()
    header = (Path(rushmem.include_dir()) / "rushmem" / "abi.h").read_text()
    numbers = {name: int(value) for name, value in re.findall(r"(RUSHMEM_(?:CMP|SIGNAL)_\w+) = (\d+)", header)}
    text = (Path(rushmem.__file__).parent / "triton.py").read_text()
    words = dict(re.findall(r'"(==|!=|>|>=|<|<=|set|add)": (\d)', text))
    names = {"==": "CMP_EQ", "!=": "CMP_NE", ">": "CMP_GT", ">=": "CMP_GE", "<": "CMP_LT", "<=": "CMP_LE", "set": "SIGNAL_SET", "add": "SIGNAL_ADD"}
    assert {word: int(value) for word, value in words.items()} == {word: numbers[f"RUSHMEM_{name}"] for word, name in names.items()}


def test_the_cpu_device_has_no_modules_to_tell(world):
    if world.device.startswith("cuda"):
        pytest.skip("this PE's device is a GPU")
    with pytest.raises(rushmem.Unsupported, match="no CUmodules"):
        world.initialise_module(4096)
    with pytest.raises(rushmem.InvalidArgument, match="null"):
        world.initialise_module(0)
