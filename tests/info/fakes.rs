//! Stand-ins for NVIDIA's libraries, so that what `rushmem-info` says about GPUs can be tested where there
//! are none, or others.

use std::path::PathBuf;
use std::process::Command;

/// Two GPUs of which the first reaches the second, but not the other way round. No context may be started on
/// them.
const DRIVER: &str = r#"
#include <stdlib.h>
#include <string.h>
static int set(const char *name) { const char *value = getenv(name); return value ? atoi(value) : 0; }
int cuDriverGetVersion(int *version) { *version = set("FAKE_VERSION"); return 0; }
int cuInit(unsigned flags) { return set("FAKE_NO_GPU") ? 100 : 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *to, int len, int device) { strncpy(to, device ? "Fake B" : "Fake A", len); return 0; }
int cuDeviceGetPCIBusId(char *to, int len, int device) { strncpy(to, device ? "0000:AB:00.0" : "0000:0A:00.0", len); return 0; }
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, 0x10 + device, 16); return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)(device + 1) << 33; return 0; }
int cuDeviceCanAccessPeer(int *can, int from, int to) { *can = from == 0 && to == 1; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { abort(); }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {                              /* as cuda.h numbers them */
    case 16: *value = 100 + device; return 0;         /* multiprocessors */
    case 75: *value = 9; return 0;                    /* compute capability, major */
    case 95: *value = 1; return 0;                    /* cooperative launches */
    case 102: *value = !set("FAKE_NO_VMM"); return 0; /* virtual memory management */
    case 103: *value = !set("FAKE_NO_VMM"); return 0; /* POSIX descriptors */
    default: *value = 0; return 0;
    }
}
"#;

/// NVRTC 13.7, which is good for nothing but being found.
const NVRTC: &str = r#"
int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 7; return 0; }
int nvrtcGetNumSupportedArchs(int *n) { *n = 0; return 0; }
int nvrtcGetSupportedArchs(int *archs) { return 0; }
const char *nvrtcGetErrorString(int error) { return ""; }
"#;

/// What else one expects of it; none of these is called.
const NVRTC_REST: [&str; 13] = [
    "CreateProgram",
    "DestroyProgram",
    "AddNameExpression",
    "CompileProgram",
    "GetProgramLogSize",
    "GetProgramLog",
    "GetCUBINSize",
    "GetCUBIN",
    "GetPTXSize",
    "GetPTX",
    "GetLTOIRSize",
    "GetLTOIR",
    "GetLoweredName",
];

/// A folder with them.
pub(crate) struct Fakes(tempfile::TempDir);

impl Fakes {
    pub(crate) fn new() -> Fakes {
        let fakes = Fakes(tempfile::tempdir().expect("a temporary folder"));
        fakes.build("libcuda.so.1", DRIVER);
        let link = fakes.0.path().join("libcuda.so");
        std::os::unix::fs::symlink("libcuda.so.1", link).expect("a link of ours");
        fakes
    }

    fn build(&self, name: &str, source: &str) -> PathBuf {
        let (library, text) = (self.0.path().join(name), self.0.path().join(format!("{name}.c")));
        std::fs::write(&text, source).expect("a file of ours");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&text).status();
        assert!(built.expect("the tests need a C compiler").success());
        library
    }

    /// The command finds this driver, which is that of CUDA `version`.
    pub(crate) fn with_driver(&self, mut command: Command, version: &str) -> Command {
        let others = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let path = format!("{}:{others}", self.0.path().display());
        command.env("LD_LIBRARY_PATH", path).env("FAKE_VERSION", version);
        command
    }

    /// An NVRTC.
    pub(crate) fn nvrtc(&self) -> PathBuf {
        let rest = NVRTC_REST.map(|name| format!("int nvrtc{name}(void) {{ return 1; }}\n")).concat();
        self.build("nvrtc.so", &format!("{NVRTC}{rest}"))
    }
}
