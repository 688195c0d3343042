//! Names, white space and places of mistakes in scripts.

/// A mistake at a byte of a script's text.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl SyntaxError {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// A letter, an underscore or part of a character beyond ASCII.
pub(crate) fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii()
}

pub(crate) fn is_name_byte(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit()
}

/// Whether a variable can be called so.
pub(crate) fn is_name(text: &str) -> bool {
    text.bytes().next().is_some_and(is_name_start) && text.bytes().all(is_name_byte)
}

/// The length of the white space that `text` begins with, continued lines included.
pub(crate) fn space(text: &str) -> usize {
    let mut length = 0;
    loop {
        let rest = &text[length..];
        length += match rest.as_bytes() {
            [b'\\', b'\n', ..] => 2,
            [b'\\', b'\r', b'\n', ..] => 3,
            [b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c, ..] => 1,
            _ => return length,
        };
    }
}
