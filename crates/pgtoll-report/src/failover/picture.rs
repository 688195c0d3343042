//! Pictures of failovers: the outage of each run.

use maud::html;

use super::FailoverRow;
use crate::document::{Block, Section};
use crate::plot::{Drawing, Frame, Look, Scale, Unit, Width, Words, figure, legend, text};

pub(super) fn outages(rows: &[FailoverRow]) -> Section {
    let looks: Vec<(String, Look)> =
        rows.iter().enumerate().map(|(at, row)| (row.describe(), Look::from_index(at))).collect();
    let described = rows.iter().zip(&looks).map(|(row, (name, _))| {
        let values: Vec<String> =
            row.outages.iter().map(|outage| format!("{outage:.2} s")).collect();
        format!("{name}: {}", values.join(", "))
    });
    let words = Words {
        id: "failover-outages".to_owned(),
        title: "Outage of each run",
        description: described.collect::<Vec<_>>().join(". "),
        caption: html! { h3 { "Seconds without an acknowledgement to any client" } },
    };
    let picture = html! {
        (legend(looks.iter().map(|(name, look)| (name.as_str(), *look))))
        (figure(&words, |width| drawing(rows, &looks, width)))
    };
    Section::evidence("Outage of each run", vec![Block::Picture(picture)])
}

fn drawing(rows: &[FailoverRow], looks: &[(String, Look)], width: Width) -> Drawing {
    let left = 62.0;
    let right = width.units() - 8.0;
    let top = 14.0;
    let bottom = 214.0;
    let most = rows.iter().map(|row| row.outages.len()).max().unwrap_or(1);
    let values = rows.iter().flat_map(|row| row.outages.iter().copied());
    let frame = Frame {
        x: Scale::linear([1.0, float(most.max(2))], Unit::Plain).between(left, right),
        y: Scale::linear(values.chain(std::iter::once(0.0)), Unit::Plain).between(bottom, top),
        title: "",
        margin: 0.0,
        x_title: "run",
        x_ticks: 6,
        y_ticks: 5,
    };
    let marks = html! {
        (frame.axes())
        @for (row, (name, look)) in rows.iter().zip(looks) {
            @for (at, outage) in row.outages.iter().enumerate() {
                (look.marker(frame.x.at(float(at + 1)), frame.y.at(*outage),
                    &format!("{name}, run {}: {outage:.2} s", at + 1)))
            }
        }
    };
    Drawing { height: bottom + 42.0, marks }
}

/// A line for each case, a mark for each of its runs.
pub(super) fn side_by_side(rows: &[FailoverRow]) -> Option<Section> {
    let described = rows.iter().map(|row| {
        let of_half = row.outage(row.median());
        format!("{}: {of_half}, median of {} runs", row.describe(), row.outages.len())
    });
    let words = Words {
        id: "failover-side-by-side".to_owned(),
        title: "Outages side by side",
        description: described.collect::<Vec<_>>().join(". "),
        caption: html! { h3 { "Seconds without an acknowledgement to any client, a mark a run" } },
    };
    let mut blocks = vec![Block::Picture(figure(&words, |width| strips(rows, width)))];
    if rows.iter().any(|row| row.are_bounds) {
        blocks.push(Block::Paragraph(
            "Without a failover manager the outage lasts until pgtoll ends the fault by hand."
                .to_owned(),
        ));
    }
    (rows.len() > 1).then(|| Section::evidence("Outages side by side", blocks))
}

/// Between the lines of two cases.
const STRIP: f64 = 40.0;

fn strips(rows: &[FailoverRow], width: Width) -> Drawing {
    let left = 8.0;
    let right = width.units() - 12.0;
    let bottom = 10.0 + STRIP * float(rows.len());
    let values = rows.iter().flat_map(|row| row.outages.iter().copied());
    let frame = Frame {
        x: Scale::linear(values.chain(std::iter::once(0.0)), Unit::Plain).between(left, right),
        y: Scale::linear([0.0, float(rows.len())], Unit::Plain).between(bottom, 10.0),
        title: "",
        margin: 0.0,
        x_title: "seconds",
        x_ticks: 6,
        y_ticks: 0,
    };
    let marks = html! {
        (frame.axes())
        @for (at, row) in rows.iter().enumerate() {
            @let y = 10.0 + STRIP * (float(at) + 0.7);
            @let look = Look::from_index(at);
            (text(left + 4.0, y - 12.0, "tick", &crate::plot::fitting(&row.describe(), right - left)))
            @for outage in &row.outages {
                (look.marker(frame.x.at(*outage), y, &format!("{}: {}", row.describe(), row.outage(Some(*outage)))))
            }
        }
    };
    Drawing { height: bottom + 42.0, marks }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of runs, far below 2^53")]
fn float(count: usize) -> f64 {
    count as f64
}
