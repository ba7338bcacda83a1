//! The stand-in for a network card's libraries (`host/runtime/tests/verbs`), for tests of several programs.

use std::path::Path;
use std::process::Command;

use super::place::on_gpus;

/// The folder of the stand-in: `RUSHMEM_TEST_VERBS`, or one that is built here; why there is none.
pub fn stand_in() -> Result<String, String> {
    if let Ok(folder) = std::env::var("RUSHMEM_TEST_VERBS") {
        return Ok(folder);
    }
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../host/runtime/tests/verbs/build");
    let built = Command::new(build).output().expect("the tests need bash");
    let said = String::from_utf8_lossy(&built.stdout).trim().to_owned();
    match built.status.code() {
        Some(0) => Ok(said),
        Some(3) => Err(said),
        _ => panic!("{}", String::from_utf8_lossy(&built.stderr)),
    }
}

/// That folder for PEs that are processes.
pub fn stand_in_of_processes() -> Result<String, String> {
    if on_gpus() {
        return Err("the stand-in for a card's libraries reaches GPU memory of its own process alone".into());
    }
    stand_in()
}
