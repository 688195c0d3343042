//! Errors as text.

use std::error::Error;

/// Returns the error with its causes in one line, separated by colons. A cause that the text before it repeats is
/// left out.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Outer(&'static str, #[source] io::Error);

    #[test]
    fn causes_follow_once() {
        let chain = |words| error_chain(&Outer(words, io::Error::other("disk full")));
        assert_eq!(chain("write a file"), "write a file: disk full");
        assert_eq!(chain("write a file: disk full"), "write a file: disk full");
    }
}
