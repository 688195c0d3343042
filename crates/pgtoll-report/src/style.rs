//! Colours of text for a terminal.

use crate::printable::printable_lines;

/// Whether text has colours: the terminal that it is for decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// No colours.
    Plain,
    /// Costs, gains and missing differences have colours.
    Coloured,
}

/// The tone of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Cost,
    Gain,
    NoDifference,
    Headline,
}

const RESET: &str = "\u{1b}[0m";
const TONES: [(Tone, &str); 4] = [
    (Tone::Cost, "\u{1b}[31m"),
    (Tone::Gain, "\u{1b}[32m"),
    (Tone::NoDifference, "\u{1b}[2m"),
    (Tone::Headline, "\u{1b}[1m"),
];

impl Style {
    /// The text, which has neither line feeds nor colours, in its colour.
    pub(crate) fn paint(self, tone: Option<Tone>, text: &str) -> String {
        let sequence = TONES.iter().find(|(item, _)| Some(*item) == tone);
        match (self, sequence) {
            (Self::Coloured, Some((_, sequence))) => format!("{sequence}{text}{RESET}"),
            _ => text.to_owned(),
        }
    }

    /// Returns printable text, as [`printable_lines`], with the colours of this style.
    pub fn printable(self, text: &str) -> String {
        if self == Self::Plain {
            return printable_lines(text).into_owned();
        }
        let mut shown = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('\u{1b}') {
            let (before, after) = rest.split_at(at);
            let sequences = TONES.iter().map(|(_, sequence)| *sequence).chain([RESET]);
            let own = sequences.into_iter().find(|sequence| after.starts_with(sequence));
            let length = own.map_or(1, str::len);
            shown += &printable_lines(before);
            shown += own.unwrap_or("\\u{1b}");
            rest = &after[length..];
        }
        shown + &printable_lines(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_coloured_style_has_colours() {
        assert_eq!(Style::Plain.paint(Some(Tone::Cost), "+5 %"), "+5 %");
        assert_eq!(Style::Coloured.paint(None, "+5 %"), "+5 %");
        let painted = Style::Coloured.paint(Some(Tone::Cost), "+5 %");
        assert_eq!(painted, "\u{1b}[31m+5 %\u{1b}[0m");
        assert_eq!(Style::Coloured.printable(&painted), painted);
    }

    #[test]
    fn nothing_else_reaches_the_terminal() {
        let hostile = "a\u{1b}]0;title\u{7}\u{1b}[2Jb\u{1b}";
        let expected = r"a\u{1b}]0;title\u{7}\u{1b}[2Jb\u{1b}";
        assert_eq!(Style::Coloured.printable(hostile), expected);
        assert_eq!(Style::Plain.printable(hostile), expected);
        assert_eq!(Style::Plain.printable("\u{1b}[31mx"), r"\u{1b}[31mx");
    }
}
