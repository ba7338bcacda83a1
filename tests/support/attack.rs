//! Random arguments for every function of a table (attack.h): the calls of the test program, and its run.

use std::fmt::Write;
use std::process::Output;

/// A function of C for each call, and the list of them.
pub(crate) struct Calls {
    text: String,
    list: String,
    number: usize,
}

impl Calls {
    pub(crate) fn new() -> Calls {
        Calls { text: String::new(), list: "static const struct named calls[] = {\n".into(), number: 0 }
    }

    /// One more call. `arguments` are the function's, as its declaration has them, and `argument` makes an
    /// expression for one of a type and a name. `one_sided` is what is asked of one PE, which need not do
    /// the same.
    pub(crate) fn add(
        &mut self,
        name: &str,
        arguments: &str,
        one_sided: bool,
        argument: impl Fn(&str, &str) -> String,
    ) {
        let number = self.number;
        let one = |one: &str| {
            let at = one.rfind([' ', '*']).expect("an argument has a type and a name") + 1;
            argument(one[..at].trim(), &one[at..])
        };
        let all = arguments.split(", ").filter(|one| !["void", "..."].contains(one));
        let arguments = all.map(one).collect::<Vec<_>>().join(", ");
        writeln!(self.text, "static void call_{number}(void) {{ (void) ({name})({arguments}); }}")
            .and_then(|()| writeln!(self.list, "{{\"{name}\", call_{number}, {}}},", u8::from(one_sided)))
            .expect("a string takes it");
        self.number += 1;
    }

    /// calls.h of the test program.
    pub(crate) fn header(self) -> String {
        format!("{}{}}};\n", self.text, self.list)
    }
}

/// RUSHMEM_TEST_SEED, or one of this moment.
pub(crate) fn seed() -> String {
    std::env::var("RUSHMEM_TEST_SEED").unwrap_or_else(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64 % 1_000_000_007).to_string()
    })
}

/// Runs the test program by `run`, which takes settings and the number of rounds, and expects all well.
/// RUSHMEM_TEST_ROUNDS=all makes twenty times as many.
pub(crate) fn attack(rounds: u32, settings: &[(&str, &str)], run: impl Fn(&[(&str, &str)], &str) -> Output) {
    let factor = if std::env::var_os("RUSHMEM_TEST_ROUNDS").is_some() { 20 } else { 1 };
    let (seed, rounds) = (seed(), (rounds * factor).to_string());
    let own = [("RUSHMEM_TEST_SEED", seed.as_str()), ("RUSHMEM_WAIT_TIMEOUT", "0.2")];
    let out = run(&[settings, &own].concat(), &rounds);
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "seed {seed}: {}\n{text}", out.status);
    assert!(text.contains("PE 0: all well"), "seed {seed}:\n{text}");
}
