//! What RUSHMEM_CHECK reported of each program of a job: tests that run several programs in one job say on
//! standard error which begins, by a line `PROGRAM name`.

use std::collections::BTreeMap;

use rushmem::testing::Outcome;

/// The reports of each program, by all PEs. A report begins with a line that has one of `heads` in it.
pub fn reports(outcomes: &[Outcome], heads: &[&str]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for outcome in outcomes {
        let mut program = String::new();
        for line in outcome.stderr.lines() {
            if let Some((_, name)) = line.split_once("PROGRAM ") {
                program = name.trim().to_owned();
                found.entry(program.clone()).or_default();
            } else if heads.iter().any(|head| line.contains(head)) {
                found.entry(program.clone()).or_default().push(line.to_owned());
            } else if let Some(last) = found.get_mut(&program).and_then(|of| of.last_mut()) {
                *last += "\n";
                *last += line;
            }
        }
    }
    found
}
