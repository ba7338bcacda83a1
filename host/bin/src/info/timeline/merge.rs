//! One file of all timelines, its times by PE 0's clock.

use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::json;

use crate::timeline::read::Timeline;

pub(crate) fn write(timelines: &[Timeline], path: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file = BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    let mut separator = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    for timeline in timelines {
        let ahead = timeline.clock.map_or(0, |clock| clock.ahead_ns);
        for event in &timeline.events {
            let mut event = event.clone();
            if let Some(us) = event["ts"].as_f64() {
                // Whole nanoseconds, as they were written.
                event["ts"] = json!(((us * 1e3).round() as i64 - ahead) as f64 / 1e3);
            }
            if event["name"] == "rushmem_clock" && !event["args"]["ahead_ns"].is_null() {
                event["args"]["ahead_ns"] = json!(0);
            }
            write!(file, "{separator}{event}").map_err(failed)?;
            separator = ",\n";
        }
    }
    writeln!(file, "\n]}}").and_then(|()| file.flush()).map_err(failed)
}
