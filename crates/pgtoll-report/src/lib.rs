//! From a record to estimates ([`summarise`]), and from estimates to what is shown
//! ([`terminal_table`]). Strings only: nothing is printed, nothing is measured.

mod summary;
mod terminal;

pub use summary::summarise;
pub use terminal::terminal_table;
