//! The answer about a fleet's backups, as Markdown in GitHub's flavour.

use std::fmt::Write as _;

use pgtoll_record::FleetRecord;

use super::{HEAD, NOT_SOUND, counts, heading, oldest, rows};
use crate::html::day;
use crate::markdown::{code, escaped};

/// How many are sound, and a row for each other backup.
pub(crate) fn fleet_markdown(of: &FleetRecord) -> String {
    let mut text = format!("### Are the backups sound?\n\n**{}**\n\n", escaped(&heading(of)));
    for (count, what) in counts(of) {
        let _ = writeln!(text, "- {count} {what}");
    }
    if let Some(oldest) = oldest(of) {
        let _ = writeln!(text, "- oldest verification: {}", escaped(&day(oldest)));
    }
    let rows = rows(of, NOT_SOUND);
    if !rows.is_empty() {
        let _ = writeln!(text, "\n| {} |\n|{}", HEAD.join(" | "), "---|".repeat(HEAD.len()));
    }
    for row in rows.iter().take(MOST) {
        let cells: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if rows.len() > MOST {
        let _ = writeln!(text, "\n{} more", rows.len() - MOST);
    }
    let _ = writeln!(text, "\n{}", code(&of.command.join(" ")));
    text
}

/// Backups that are shown; JSON has all.
const MOST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::record;

    #[test]
    fn backups_that_are_not_sound_are_rows() {
        insta::assert_snapshot!(fleet_markdown(&record()));
    }
}
