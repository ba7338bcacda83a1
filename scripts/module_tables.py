"""Which module may use which, for scripts/check-tree: the arrows of ARCHITECTURE.md. A table begins at the
bottom: each module comes after those that it may use, so that there is no circle. A crate's root may use all
of its modules.

`KNOWN` holds arrows that are wrong and known: each is a defect with its reason, printed as a note until it is
gone."""

# host/runtime/src, from the operating system up to the C ABI.
RUNTIME = {
    # What everything stands on: errors, settings, the operating system, words of memory.
    "error": set(),
    "logging": set(),
    "settings": set(),
    "seeds": set(),
    "word": set(),
    "os": {"error"},
    "fork": {"error"},
    "handles": {"error"},
    "config": {"error"},
    "health": {"error"},
    # The devices.
    "gpu": {"error", "health"},
    "device": {"config", "error", "gpu"},
    # Who is where: cards, nodes, the near PEs. Kernels learn them by the device state.
    "topology": {"config", "device", "error", "seeds"},
    "device_state": {"error", "gpu", "health", "topology"},
    "kernel": {"config", "device", "device_state", "error", "gpu", "handles", "health"},
    # PEs: those of this host, how all meet, and rounds of host calls.
    "node": {"error", "health", "os", "seeds", "topology"},
    "plugin": set(),
    "boot": {"config", "error", "node", "plugin"},
    "collective": {"error", "health", "node", "topology"},
    # Symmetric memory, and the way to PEs that do not map it.
    "memory": {"collective", "config", "error", "gpu", "node", "os", "topology"},
    "net": {"config", "error", "gpu", "health", "kernel", "memory", "node", "seeds", "topology", "word"},
    # Operations, and what holds it all.
    "ops": {"error", "gpu", "health", "kernel", "net", "topology", "word"},
    "world": {
        "boot", "collective", "config", "device", "device_state", "error", "fork", "health", "kernel", "memory",
        "net", "node", "ops", "os", "topology",
    },
    "capi": {
        "boot", "config", "device", "error", "fork", "gpu", "handles", "kernel", "logging", "node", "ops",
        "plugin", "settings", "world",
    },
    # Entry points of fuzz targets.
    "fuzzing": {"boot", "config", "net", "node", "topology"},
}

# host/api, from addresses up to streams.
API = {
    "device": set(),
    "element": set(),
    "embedded": set(),
    "error": set(),
    "forked": set(),
    "pe": set(),
    "table": set(),
    "runtime": {"embedded", "error", "table"},
    "doctor": {"error", "runtime"},
    "gpu": {"error", "runtime"},
    "source": {"error"},
    "near": {"forked", "pe"},
    "near_pes": {"pe"},
    "world": {"device", "error", "forked", "near", "near_pes", "pe", "runtime"},
    "builder": {"device", "error", "runtime", "world"},
    "run": {"builder", "error", "world"},
    "testing": {"builder", "pe", "world"},
    "slice": {"element", "error", "forked", "near", "pe", "world"},
    "heap": {"element", "error", "slice", "world"},
    "order": {"error", "world"},
    "rma": {"element", "error", "near", "pe", "slice"},
    "atomic": {"element", "error", "pe", "slice"},
    "wait": {"element", "error", "slice"},
    "signal": {"element", "error", "near", "pe", "slice", "wait", "world"},
    "nbi": {"element", "error", "pe", "signal", "slice", "world"},
    "args": {"element", "heap", "signal", "slice"},
    "stream": {"error", "world"},
    "on_stream": {"element", "error", "pe", "rma", "signal", "slice", "stream", "wait", "world"},
    "kernel": {"args", "error", "runtime", "source", "stream", "world"},
    "cudarc": {"device", "element", "error", "pe", "slice", "world"},
}

# host/bin/src/perf: what all measures share, then a module for each.
PERF = {
    "environment": set(),
    "job": set(),
    "progress": set(),
    "gpu": {"job"},
    "stats": {"job"},
    "args": set(),
    "table": set(),
    "report": {"args", "environment", "job", "stats", "table"},
    "plot": {"job", "report", "table"},
    "summary": {"args", "job", "report", "stats", "table"},
    "peer": {"job", "report", "summary"},
    "host": {"args", "environment", "job", "peer", "report", "stats"},
    "startup": {"args", "environment", "gpu", "job", "peer", "progress", "report", "stats", "table"},
    "device": {"args", "environment", "gpu", "job", "peer", "plot", "progress", "report", "startup", "stats"},
    "far": {"args", "environment", "gpu", "job", "peer", "progress", "report", "stats"},
    "mixed": {"args", "environment", "job", "peer", "progress", "report", "stats"},
}

# crate root -> its table.
TABLES = {
    "host/runtime/src/lib.rs": RUNTIME,
    "host/api/lib.rs": API,
    "host/bin/src/perf/main.rs": PERF,
}

# crate root -> (module, module) -> why that is still there.
KNOWN = {
    "host/runtime/src/lib.rs": {
        ("ops", "world"): "operations ask a world for routes, which have no place of their own below them",
    },
    "host/bin/src/perf/main.rs": {
        ("args", "device"): "the arguments of `device` lie with it, and args takes them in",
        ("args", "far"): "the figures of `far` are arguments",
        ("table", "report"): "the table of a report is built from it, and report takes widths from table",
    },
}
