//! Figures over size as an SVG: latencies above, bandwidths below, both axes by powers. Ours is a solid line
//! with its measured points; of the same colour, paler, are the peer's with crosses and the bare
//! instructions' triangles; grey is what the machine can do. At the top stand the machine, the date and the
//! code, as without them a figure means nothing, and what the marks are, of those that are in it.

use std::ops::Range;

use plotters::prelude::*;

use crate::environment::Environment;
use crate::job::{Failure, Result};
use crate::report::{Report, Row};
use crate::text::size;

const WIDTH: u32 = 1100;
const PANEL: u32 = 520;
/// Of the lines at the top.
const HEAD: u32 = 84;
/// Of the lines, in order; readable on white, and apart from each other.
const COLOURS: [RGBColor; 10] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(23, 170, 190),
    RGBColor(140, 86, 75),
    RGBColor(227, 90, 190),
    RGBColor(120, 130, 30),
    RGBColor(60, 60, 60),
];

/// One line of rows that differ in size alone.
struct Curve<'r> {
    name: String,
    rows: Vec<&'r Row>,
}

impl Curve<'_> {
    /// Points of what rows have, by size.
    fn points(&self, of: impl Fn(&Row) -> Option<f64>) -> Vec<(f64, f64)> {
        let point =
            |row: &&Row| Some((row.bytes? as f64, of(row)?)).filter(|(_, y)| *y > 0.0 && y.is_finite());
        self.rows.iter().filter_map(point).collect()
    }

    fn everything(&self) -> Vec<(f64, f64)> {
        let mut points = self.points(|row| Some(row.ours.median));
        points.extend(self.points(peer));
        points.extend(self.points(probe));
        points.extend(self.points(machine));
        points
    }
}

fn peer(row: &Row) -> Option<f64> {
    row.peer.as_ref().map(|peer| peer.value)
}

fn probe(row: &Row) -> Option<f64> {
    row.reference.as_ref().map(|probe| probe.summary.median)
}

fn machine(row: &Row) -> Option<f64> {
    row.machine.as_ref().map(|machine| machine.value)
}

/// The rows as an SVG document.
///
/// # Errors
/// No operation was measured at two sizes.
pub(crate) fn svg(report: &Report) -> Result<String> {
    let rows = &report.rows;
    let panels: Vec<(&str, &str, Vec<Curve<'_>>)> =
        [("latency", "us", curves(rows, "us")), ("bandwidth", "GB/s", curves(rows, "GB/s"))]
            .into_iter()
            .filter(|(_, _, curves)| !curves.is_empty())
            .collect();
    if panels.is_empty() {
        return Err(Failure::new("nothing to draw: no operation was measured at two sizes (--sizes)"));
    }
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, HEAD + PANEL * panels.len() as u32))
            .into_drawing_area();
        root.fill(&WHITE).map_err(said)?;
        let (top, root) = root.split_vertically(HEAD);
        let drawn: Vec<&Row> =
            panels.iter().flat_map(|(.., curves)| curves).flat_map(|c| c.rows.clone()).collect();
        head(&top, report, &drawn)?;
        for (area, (what, unit, curves)) in root.split_evenly((panels.len(), 1)).iter().zip(&panels) {
            panel(area, what, unit, curves)?;
        }
        root.present().map_err(said)?;
    }
    Ok(text)
}

fn said(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("cannot draw: {error}"))
}

/// What was measured, where, when, and with which code.
fn lines(tool: &str, environment: &Environment) -> [String; 2] {
    let Environment { cpu, cores, gpus, driver, date, commit, build, .. } = environment;
    let mut machine = format!("{tool}: {cpu}, {cores} cores");
    if !gpus.is_empty() {
        machine += &format!("; {}; driver {}", gpus.join("; "), driver.as_deref().unwrap_or("unknown"));
    }
    let commit = commit.as_deref().unwrap_or("unknown");
    [machine, format!("{date}, commit {commit}, {build} build")]
}

/// The names of what stands beside ours in some rows, each once.
fn names<'r>(rows: &[&'r Row], of: impl Fn(&'r Row) -> Option<&'r str>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in rows.iter().filter_map(|row| of(row)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

/// The lines at the top, and what the marks are.
fn head<D: DrawingBackend>(
    area: &DrawingArea<D, plotters::coord::Shift>,
    report: &Report,
    rows: &[&Row],
) -> Result<()>
where
    D::ErrorType: 'static,
{
    let (small, grey) = (("sans-serif", 13), RGBColor(170, 170, 170));
    for (i, line) in lines(&report.tool, &report.environment).into_iter().enumerate() {
        area.draw(&Text::new(line, (12, 10 + 22 * i as i32), small)).map_err(said)?;
    }
    let mut x = 12;
    let y = 64;
    let dark = COLOURS[9].stroke_width(2);
    let mut entry = |mark: usize, name: String| -> Result<()> {
        if name.is_empty() {
            return Ok(());
        }
        let across = vec![(x, y), (x + 24, y)];
        match mark {
            0 => {
                area.draw(&PathElement::new(across, dark)).map_err(said)?;
                area.draw(&Circle::new((x + 12, y), 2, dark.filled())).map_err(said)?;
            }
            1 => area.draw(&Cross::new((x + 12, y), 4, dark)).map_err(said)?,
            2 => area.draw(&TriangleMarker::new((x + 12, y), 5, COLOURS[9])).map_err(said)?,
            _ => area.draw(&PathElement::new(across, grey)).map_err(said)?,
        }
        area.draw(&Text::new(name.clone(), (x + 32, y - 7), small)).map_err(said)?;
        x += 60 + 7 * name.chars().count() as i32;
        Ok(())
    };
    entry(0, "rushmem, median".to_owned())?;
    entry(1, names(rows, |row| row.peer.as_ref().map(|peer| peer.name.as_str())))?;
    entry(2, names(rows, |row| row.reference.as_ref().map(|bare| bare.name.as_str())))?;
    entry(3, names(rows, |row| row.machine.as_ref().map(|machine| machine.name.as_str())))
}

/// Rows of one unit as lines, in the order in which they were measured.
fn curves<'r>(rows: &'r [Row], unit: &str) -> Vec<Curve<'r>> {
    let mut curves: Vec<Curve<'r>> = Vec::new();
    for row in rows.iter().filter(|row| row.unit == unit && row.bytes.is_some() && row.shape.is_some()) {
        let name = name(row);
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.rows.push(row),
            None => curves.push(Curve { name, rows: vec![row] }),
        }
    }
    curves.retain(|curve| curve.rows.len() > 1);
    curves
}

fn name(row: &Row) -> String {
    let Some(shape) = &row.shape else { return row.measure.clone() };
    match shape.blocks {
        0 => format!("{}, {}", row.measure, shape.scope),
        _ => format!("{}, {} ({} x {})", row.measure, shape.scope, shape.blocks, shape.threads),
    }
}

/// The range of some values, with room around; for an axis by powers.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (least, most) =
        values.fold((f64::MAX, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    least / 1.3..most * 1.3
}

fn panel<D: DrawingBackend>(
    area: &DrawingArea<D, plotters::coord::Shift>,
    what: &str,
    unit: &str,
    curves: &[Curve<'_>],
) -> Result<()>
where
    D::ErrorType: 'static,
{
    let all: Vec<(f64, f64)> = curves.iter().flat_map(Curve::everything).collect();
    let x = range(all.iter().map(|(x, _)| *x)).log_scale().base(2.0);
    let y = range(all.iter().map(|(_, y)| *y)).log_scale();
    let caption = format!("{what} in {unit}");
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 16))
        .margin(12)
        .margin_right(28)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)
        .map_err(said)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&|bytes| size(bytes.round() as u64))
        .y_label_formatter(&|value| format!("{}", (value * 1e6).round() / 1e6))
        .x_desc("bytes of one operation")
        .y_desc(unit)
        .draw()
        .map_err(said)?;
    for curve in curves {
        let line = LineSeries::new(curve.points(machine), RGBColor(170, 170, 170));
        chart.draw_series(line).map_err(said)?;
    }
    for (i, curve) in curves.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()].to_rgba();
        let pale = colour.mix(0.5).stroke_width(1);
        let peers = curve.points(peer);
        chart.draw_series(LineSeries::new(peers.clone(), pale)).map_err(said)?;
        chart
            .draw_series(peers.into_iter().map(|at| Cross::new(at, 4, colour.stroke_width(1))))
            .map_err(said)?;
        let bare = curve.points(probe).into_iter();
        chart.draw_series(bare.map(|at| TriangleMarker::new(at, 5, pale))).map_err(said)?;
        let ours = curve.points(|row| Some(row.ours.median));
        let line = LineSeries::new(ours, colour.stroke_width(2)).point_size(2);
        let series = chart.draw_series(line).map_err(said)?;
        series
            .label(curve.name.as_str())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    let corner = if unit == "us" { SeriesLabelPosition::UpperLeft } else { SeriesLabelPosition::LowerRight };
    let mut labels = chart.configure_series_labels();
    labels.position(corner).background_style(WHITE.mix(0.85)).border_style(BLACK.mix(0.3));
    labels.label_font(("sans-serif", 13)).draw().map_err(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Beside, Shape};
    use crate::stats::Summary;

    fn row(measure: &str, unit: &str, bytes: u64, value: f64) -> Row {
        let mut row = Row::new(measure, Some(bytes), 2, unit, Summary::single(value));
        row.shape = Some(Shape { scope: "block".into(), blocks: 4, threads: 64, ..Shape::default() });
        row.peer = Some(Beside { name: "a peer library".into(), value: value * 2.0 });
        row.against("bare instructions", Summary::single(value / 2.0))
    }

    fn report(rows: Vec<Row>) -> Report {
        let environment = Environment {
            date: "2026-11-24T10:11:12Z".to_owned(),
            commit: Some("0123456789ab".to_owned()),
            cpu: "A processor".to_owned(),
            cores: 7,
            gpus: vec!["A card, 9 SMs, 4 GiB".to_owned()],
            driver: Some("580.1".to_owned()),
            ..Environment::here()
        };
        let (tool, parameters) = ("rushmem-perf 9 device".to_owned(), serde_json::Value::Null);
        Report { schema: 1, tool, environment, parameters, rows }
    }

    #[test]
    fn machine_date_and_marks_stand_at_the_top() {
        let sizes = [8, 1024];
        let mut rows: Vec<Row> = sizes.map(|bytes| row("put", "us", bytes, 1.0 + bytes as f64)).into();
        let with_all = svg(&report(rows.clone())).expect("there is a line to draw");
        for text in [
            "rushmem-perf 9 device: A processor, 7 cores; A card, 9 SMs, 4 GiB; driver 580.1",
            "2026-11-24T10:11:12Z, commit 0123456789ab,",
            "rushmem, median",
            "a peer library",
            "bare instructions",
        ] {
            assert!(with_all.contains(text), "{text}: {with_all}");
        }
        assert!(!with_all.contains("the link"), "no row has that");
        // What is not in the plot is not in its legend.
        for row in &mut rows {
            (row.peer, row.reference) = (None, None);
            row.machine = Some(Beside { name: "the link".into(), value: 3.0 });
        }
        let with_machine = svg(&report(rows)).expect("there is a line to draw");
        assert!(with_machine.contains("the link"), "{with_machine}");
        for text in ["a peer library", "bare instructions"] {
            assert!(!with_machine.contains(text), "{text}: {with_machine}");
        }
    }

    #[test]
    fn each_operation_has_its_line() {
        let sizes = [8, 1024, 65536];
        let mut rows: Vec<Row> = sizes.map(|bytes| row("put", "us", bytes, 1.0 + bytes as f64 / 1e4)).into();
        rows.extend(sizes.map(|bytes| row("get bandwidth", "GB/s", bytes, bytes as f64 / 1e3)));
        rows.push(row("alone", "us", 8, 5.0));
        let svg = svg(&report(rows)).expect("there are lines to draw");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in ["put, block (4 x 64)", "get bandwidth, block (4 x 64)", "KiB", "GB/s"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("alone"), "one point is no line");
    }

    #[test]
    fn without_sizes_there_is_nothing_to_draw() {
        assert!(svg(&report(vec![row("put", "us", 8, 1.0)])).is_err());
        assert!(svg(&report(Vec::new())).is_err());
    }
}
