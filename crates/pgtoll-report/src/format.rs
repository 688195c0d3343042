//! The formats that a record is shown in.

/// A format that a record is shown in.
///
/// ```
/// use pgtoll_report::Format;
///
/// assert_eq!(Format::of_ending("htm"), Some(Format::Html));
/// assert_eq!(Format::of_name("markdown"), Some(Format::Markdown));
/// assert_eq!(Format::of_ending("pdf"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    Table,
    /// GitHub's Markdown.
    Markdown,
    /// The record itself, for programs.
    Json,
    /// A page of its own.
    Html,
    /// Lines for benchstat.
    Gobench,
    /// A row a figure.
    Csv,
    /// A line for Nagios and its relatives.
    Nagios,
    /// Gauges for Prometheus.
    OpenMetrics,
}

impl Format {
    /// All of them, the one for terminals first.
    pub const ALL: [Self; 8] = [
        Self::Table,
        Self::Markdown,
        Self::Json,
        Self::Html,
        Self::Gobench,
        Self::Csv,
        Self::Nagios,
        Self::OpenMetrics,
    ];

    /// As `--format` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Markdown => "md",
            Self::Json => "json",
            Self::Html => "html",
            Self::Gobench => "gobench",
            Self::Csv => "csv",
            Self::Nagios => "nagios",
            Self::OpenMetrics => "openmetrics",
        }
    }

    /// The format of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = if name == "markdown" { "md" } else { name };
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Its purpose.
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Table => "For a terminal",
            Self::Markdown => "GitHub's Markdown",
            Self::Json => "All of it, for programs",
            Self::Html => "A page of its own",
            Self::Gobench => "Lines for benchstat",
            Self::Csv => "A row a figure",
            Self::Nagios => "A line for Nagios and Icinga, with their exit statuses",
            Self::OpenMetrics => "Gauges for Prometheus",
        }
    }

    /// Returns the endings of file names, the usual one first; none of a format that is not for files.
    pub fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Table => &["txt"],
            Self::Markdown => &["md", "markdown"],
            Self::Json => &["json"],
            Self::Html => &["html", "htm"],
            Self::Gobench => &["bench"],
            Self::Csv => &["csv"],
            Self::Nagios => &[],
            Self::OpenMetrics => &["prom"],
        }
    }

    /// The format of files whose names end so, in any case.
    pub fn of_ending(ending: &str) -> Option<Self> {
        let is_its =
            |format: &Self| format.endings().iter().any(|known| known.eq_ignore_ascii_case(ending));
        Self::ALL.into_iter().find(is_its)
    }
}

/// Their names, for a sentence: `table, json or html`.
pub fn format_names(formats: &[Format]) -> String {
    let names: Vec<&str> = formats.iter().map(|format| format.name()).collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}
