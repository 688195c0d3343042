//! Names, messages and records that mean to take over a terminal or a spreadsheet.
