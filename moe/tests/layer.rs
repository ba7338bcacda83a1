//! The example, a whole layer, on several PEs.

use std::path::PathBuf;
use std::process::Command;

/// A program of this build: tests lie in `deps`, beside `examples`.
fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this program has a path");
    let deps = own.parent().expect("it lies in a folder");
    deps.parent().expect("deps lies in a folder").join(name)
}

#[test]
fn a_whole_layer_is_as_a_serial_one() {
    let (launcher, example) = (built("rushmem-run"), built("examples/moe_layer"));
    if !launcher.exists() || !example.exists() {
        println!(
            "SKIP moe_layer: rushmem-run or the example is not built: cargo build --workspace --examples"
        );
        return;
    }
    for (pes, more) in [("1", ["--experts", "4"]), ("3", ["--experts", "10"])] {
        let output = Command::new(&launcher)
            .args(["-n", pes, "--timeout", "60", "--"])
            .arg(&example)
            .args(more)
            .output()
            .expect("the launcher starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("as in a serial layer"), "{output:?}");
    }
    let refused =
        Command::new(&example).args(["--experts", "2", "--top-k", "3"]).output().expect("it starts");
    assert!(!refused.status.success());
}
