//! Options that do nothing for what is measured: an error where that is so of every measure, else said aloud.
//! A figure that was made otherwise than was asked for must not look as if it were what was asked for.

use clap::ValueEnum;

use super::args::{Common, DeviceArgs, DeviceMeasure, StreamArgs, StreamMeasure};
use super::measure::What;
use super::scope::Scope;
use crate::job::{Failure, Result};

/// Measures that were chosen, by their names on the command line.
type Chosen = Vec<(String, What)>;
/// An option that was given, and the measures for which it does something.
type Given<'a> = (&'a str, bool, &'a dyn Fn(What) -> bool);

/// What `device` is to measure; says what of the options does not concern all of it.
///
/// # Errors
/// An option concerns none of it.
pub(super) fn device(args: &DeviceArgs) -> Result<Vec<What>> {
    if args.measures.iter().any(|measure| measure.is_set()) {
        return targets(args);
    }
    let everything = args.measures.is_empty() || args.measures.contains(&DeviceMeasure::All);
    let all = if everything { DeviceMeasure::value_variants() } else { &args.measures };
    let chosen = named(all, DeviceMeasure::what);
    let in_block = |what: What| what.row().grid || what.row().scopes.contains(&Scope::Block);
    let options: [Given<'_>; 8] = [
        ("--scope", !args.scope.is_empty(), &|what| what.row().scopes.iter().any(|s| args.scope.contains(s))),
        ("--blocks", !args.blocks.is_empty(), &|what| {
            what.row().scopes.iter().any(|&s| what.takes_blocks(s))
        }),
        ("--threads", args.threads.is_some(), &in_block),
        ("--both", args.both, &|what| what.row().grid),
        ("--shift", args.shift != 0, &|what| what.row().shift),
        ("--stage", args.stage != 0, &|what| what.row().stage),
        ("--pes", !args.pes.is_empty(), &What::is_collective),
        ("--sizes", !args.common.sizes.is_empty(), &|what| takes_sizes(&args.common, what)),
    ];
    check(chosen, &options)
}

/// What `stream` is to measure.
///
/// # Errors
/// As for [`device`].
pub(super) fn stream(args: &StreamArgs) -> Result<Vec<What>> {
    let everything = args.measures.is_empty() || args.measures.contains(&StreamMeasure::All);
    let all = if everything { StreamMeasure::value_variants() } else { &args.measures };
    let chosen = named(all, StreamMeasure::what);
    let by: Vec<Scope> = args.by.iter().map(|by| by.scope()).collect();
    let options: [Given<'_>; 3] = [
        ("--by", !by.is_empty(), &|what| what.row().scopes.iter().any(|scope| by.contains(scope))),
        ("--pes", !args.pes.is_empty(), &What::is_collective),
        ("--sizes", !args.common.sizes.is_empty(), &|what| takes_sizes(&args.common, what)),
    ];
    check(chosen, &options)
}

/// Each target has its own shape.
fn targets(args: &DeviceArgs) -> Result<Vec<What>> {
    let lists = [args.scope.len(), args.blocks.len(), args.pes.len(), args.common.sizes.len()];
    let flags = [args.threads.is_some(), args.both, args.no_probes, args.shift != 0, args.stage != 0];
    let shaped = lists.iter().any(|&n| n > 0) || flags.contains(&true);
    match shaped {
        false => Ok(Vec::new()),
        true => Err(Failure::new(
            "each row of targets and curves has its own size, scope and launch: no options for them",
        )),
    }
}

/// Whether some of the sizes can be measured.
fn takes_sizes(common: &Common, what: What) -> bool {
    what.row().sizes.is_some() && common.sizes.iter().any(|&bytes| what.takes(bytes))
}

fn named<M: ValueEnum + Copy>(measures: &[M], what: impl Fn(M) -> Option<What>) -> Chosen {
    let name =
        |measure: &M| measure.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
    measures.iter().filter_map(|measure| Some((name(measure), what(*measure)?))).collect()
}

fn check(chosen: Chosen, options: &[Given<'_>]) -> Result<Vec<What>> {
    for (option, _, fits) in options.iter().filter(|(_, given, _)| *given) {
        let idle = chosen.iter().filter(|(_, what)| !fits(*what));
        let idle: Vec<&str> = idle.map(|(name, _)| name.as_str()).collect();
        let said = || format!("{option} as given does nothing for {}", idle.join(", "));
        match idle.len() {
            0 => {}
            all if all == chosen.len() => return Err(Failure::new(said())),
            _ => eprintln!("rushmem-perf: {}", said()),
        }
    }
    Ok(chosen.into_iter().map(|(_, what)| what).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn chosen(line: &str) -> Result<Vec<What>> {
        match Cli::parse_from(["rushmem-perf"].into_iter().chain(line.split_whitespace())).command {
            Command::Device(args) => device(&args),
            Command::Stream(args) => stream(&args),
            _ => unreachable!("one of the two"),
        }
    }

    #[test]
    fn an_option_that_does_nothing_is_an_error() {
        for line in [
            "device p-latency --both",
            "device put-latency sync --blocks 4",
            "device atomic-bw --scope warp",
            "device signal-pingpong --scope block",
            "device sync --sizes 8",
            "device p-bw --sizes 12",
            "device p-bw --shift 1",
            "device put-bw --pes 2",
            "device signal-latency --threads 32",
            "device targets --both",
            "device curves --scope warp",
            "device targets --sizes 8",
            "stream put --pes 3",
            "stream barrier --by graph",
        ] {
            assert!(chosen(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_concerns_some_is_done() {
        assert_eq!(chosen("device p-bw --scope warp --both").ok(), Some(vec![What::PBw]));
        assert_eq!(
            chosen("device p-bw p-latency --both").ok(),
            Some(vec![What::PBw, What::PLatency]),
            "it is said of p-latency"
        );
        assert!(chosen("device --both --scope thread --stage 4096 --sizes 8").is_ok_and(|all| all.len() > 15));
        assert!(chosen("stream --by graph --sizes 8,9").is_ok_and(|all| all.len() > 5));
    }
}
