//! Expressions from their text.

use std::ops::Range;

use super::functions::{ARGUMENTS_MAX, Named};
use super::{Expression, Function, Scalar};
use crate::syntax::{SyntaxError, is_name, is_name_byte, is_name_start, space};

type Parsed = Expression<String>;

/// Parses `text[range]`; mistakes are at offsets of `text`.
pub(crate) fn parse(text: &str, range: Range<usize>) -> Result<Parsed, SyntaxError> {
    let tokens = tokens(text, range.clone())?;
    let mut parser = Parser { tokens: &tokens, next: 0, end: range.end, nodes: 0, nesting: 0 };
    let expression = parser.expression(LOWEST)?;
    match parser.peek() {
        None => Ok(expression),
        Some(_) => Err(parser.unexpected()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Integer(i64),
    /// 2^63, which is a number only behind a minus.
    Beyond,
    Double(f64),
    Variable(&'a str),
    Word(&'a str),
    Symbol(&'static str),
}

fn tokens(text: &str, range: Range<usize>) -> Result<Vec<(usize, Token<'_>)>, SyntaxError> {
    let text = &text[..range.end];
    let mut tokens = Vec::new();
    let mut at = range.start;
    loop {
        at += space(&text[at..]);
        let rest = &text[at..];
        let Some(&first) = rest.as_bytes().first() else { return Ok(tokens) };
        let length;
        let token;
        if first == b':' {
            length = 1 + name_length(&rest[1..]);
            if !is_name(&rest[1..length]) {
                return Err(SyntaxError::new(at, "a variable's name must follow the colon"));
            }
            token = Token::Variable(&rest[1..length]);
        } else if is_name_start(first) {
            length = name_length(rest);
            token = Token::Word(&rest[..length]);
        } else if let Some(found) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            length = found.len();
            token = Token::Symbol(found);
        } else if let Some(found) = number_length(rest) {
            length = found;
            token = number(&rest[..length]).map_err(|message| SyntaxError::new(at, message))?;
        } else {
            let character = rest.chars().next().unwrap_or_default();
            return Err(SyntaxError::new(at, format!("unexpected character {character:?}")));
        }
        tokens.push((at, token));
        at += length;
    }
}

fn name_length(text: &str) -> usize {
    text.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(text.len())
}

/// The length of the number that `text` begins with.
fn number_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let digits =
        |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut length = digits(0);
    if bytes.get(length) == Some(&b'.') && (length > 0 || digits(1) > 0) {
        length += 1 + digits(length + 1);
    }
    if length > 0 && matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits((length + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    (length > 0).then_some(length)
}

fn number(text: &str) -> Result<Token<'static>, &'static str> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return match text.parse() {
            Ok(number) => Ok(Token::Integer(number)),
            Err(_) if text.trim_start_matches('0') == "9223372036854775808" => Ok(Token::Beyond),
            Err(_) => Err("integer is out of range"),
        };
    }
    let number: f64 = text.parse().map_err(|_| "malformed number")?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = mantissa.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    if number.is_normal() || is_zero {
        Ok(Token::Double(number))
    } else {
        Err("double is out of range")
    }
}

/// Longer ones first.
const SYMBOLS: [&str; 21] = [
    "<<", ">>", "<=", ">=", "<>", "!=", "+", "-", "*", "/", "%", "(", ")", ",", "<", ">", "=", "|",
    "#", "&", "~",
];

struct Parser<'a> {
    tokens: &'a [(usize, Token<'a>)],
    next: usize,
    end: usize,
    nodes: usize,
    nesting: usize,
}

impl<'a> Parser<'a> {
    /// An expression of operators that bind at least as tightly as `minimum`.
    fn expression(&mut self, minimum: u8) -> Result<Parsed, SyntaxError> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(self.mistake("expression is nested too deeply"));
        }
        let mut left = self.operand()?;
        loop {
            if minimum <= IS
                && let Some((wanted, negated)) = self.test()?
            {
                let constant = self.leaf(Expression::Constant(wanted))?;
                left = self.call(Function::Is, vec![left, constant])?;
                if negated {
                    left = self.call(Function::Not, vec![left])?;
                }
                continue;
            }
            let Some((level, function, mirrored)) = self.operator() else { break };
            if level < minimum {
                break;
            }
            self.next += 1;
            let right = self.expression(level + 1)?;
            let operands = if mirrored { vec![right, left] } else { vec![left, right] };
            left = self.call(function, operands)?;
            // Comparisons do not associate.
            if level == COMPARISON && self.operator().is_some_and(|(next, ..)| next == level) {
                return Err(self.unexpected());
            }
        }
        self.nesting -= 1;
        Ok(left)
    }

    fn operand(&mut self) -> Result<Parsed, SyntaxError> {
        let Some(token) = self.peek() else { return Err(self.unexpected()) };
        self.next += 1;
        match token {
            Token::Integer(number) => self.leaf(Expression::Constant(Scalar::Integer(number))),
            Token::Double(number) => self.leaf(Expression::Constant(Scalar::Double(number))),
            Token::Variable(name) => self.leaf(Expression::Variable(name.to_owned())),
            Token::Symbol("(") => {
                let inner = self.expression(LOWEST)?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Symbol("+") => self.expression(UNARY),
            Token::Symbol("-") => self.negated(),
            Token::Symbol("~") => {
                let ones = self.leaf(Expression::Constant(Scalar::Integer(-1)))?;
                let operand = self.expression(BITS + 1)?;
                self.call(Function::BitXor, vec![ones, operand])
            }
            Token::Word(word) => self.word(word),
            Token::Symbol(_) | Token::Beyond => {
                self.next -= 1;
                Err(self.unexpected())
            }
        }
    }

    fn negated(&mut self) -> Result<Parsed, SyntaxError> {
        if self.peek() == Some(Token::Beyond) {
            self.next += 1;
            return self.leaf(Expression::Constant(Scalar::Integer(i64::MIN)));
        }
        let zero = self.leaf(Expression::Constant(Scalar::Integer(0)))?;
        let operand = self.expression(UNARY)?;
        self.call(Function::Subtract, vec![zero, operand])
    }

    fn word(&mut self, word: &str) -> Result<Parsed, SyntaxError> {
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
        if let Some(scalar) = constant(word) {
            return self.leaf(Expression::Constant(scalar));
        }
        if is("not") {
            let operand = self.expression(NOT)?;
            return self.call(Function::Not, vec![operand]);
        }
        if is("case") {
            return self.case();
        }
        if self.peek() != Some(Token::Symbol("(")) {
            self.next -= 1;
            return Err(self.unexpected());
        }
        let Some(named) = Named::find(word) else {
            self.next -= 1;
            return Err(self.mistake(format!("unknown function {word:?}")));
        };
        self.next += 1;
        self.function(named)
    }

    fn function(&mut self, named: &Named) -> Result<Parsed, SyntaxError> {
        let begin = self.next.saturating_sub(2);
        let mut arguments = Vec::new();
        if self.peek() != Some(Token::Symbol(")")) {
            arguments.push(self.expression(LOWEST)?);
            while self.peek() == Some(Token::Symbol(",")) {
                self.next += 1;
                arguments.push(self.expression(LOWEST)?);
            }
        }
        self.expect(")")?;
        let (fewest, most) = named.arguments;
        let count = arguments.len();
        if !(fewest..=most).contains(&count) {
            self.next = begin;
            let wanted = match (fewest, most) {
                (0, 0) => "no arguments".to_owned(),
                (_, ARGUMENTS_MAX) => format!("{fewest} to {most} arguments"),
                (fewest, most) if fewest == most => format!("{fewest} arguments"),
                _ => format!("{fewest} or {most} arguments"),
            };
            return Err(self.mistake(format!("{} takes {wanted}, not {count}", named.name)));
        }
        if named.has_default_seed() && count < most {
            arguments.push(self.leaf(Expression::Variable("default_seed".to_owned()))?);
        }
        self.call(named.function, arguments)
    }

    fn case(&mut self) -> Result<Parsed, SyntaxError> {
        let mut arguments = Vec::new();
        while self.take("when") {
            arguments.push(self.expression(LOWEST)?);
            if !self.take("then") {
                return Err(self.unexpected());
            }
            arguments.push(self.expression(LOWEST)?);
        }
        if arguments.is_empty() {
            return Err(self.unexpected());
        }
        arguments.push(if self.take("else") {
            self.expression(LOWEST)?
        } else {
            self.leaf(Expression::Constant(Scalar::Null))?
        });
        if !self.take("end") {
            return Err(self.unexpected());
        }
        self.call(Function::Case, arguments)
    }

    /// `IS NULL` and the like behind an operand: what it must be, or must not be.
    fn test(&mut self) -> Result<Option<(Scalar, bool)>, SyntaxError> {
        if self.take("isnull") {
            return Ok(Some((Scalar::Null, false)));
        }
        if self.take("notnull") {
            return Ok(Some((Scalar::Null, true)));
        }
        if !self.take("is") {
            return Ok(None);
        }
        let negated = self.take("not");
        let wanted = match self.peek() {
            Some(Token::Word(word)) => constant(word),
            _ => None,
        };
        let Some(wanted) = wanted else { return Err(self.unexpected()) };
        self.next += 1;
        Ok(Some((wanted, negated)))
    }

    /// The next operator, how tightly it binds, and whether it is its function's mirror image.
    fn operator(&self) -> Option<(u8, Function, bool)> {
        let (level, function) = match self.peek()? {
            Token::Word(word) if word.eq_ignore_ascii_case("or") => (OR, Function::Or),
            Token::Word(word) if word.eq_ignore_ascii_case("and") => (AND, Function::And),
            Token::Symbol(symbol) => match symbol {
                ">" => return Some((COMPARISON, Function::Less, true)),
                ">=" => return Some((COMPARISON, Function::LessOrEqual, true)),
                "<" => (COMPARISON, Function::Less),
                "<=" => (COMPARISON, Function::LessOrEqual),
                "=" => (COMPARISON, Function::Equal),
                "<>" | "!=" => (COMPARISON, Function::NotEqual),
                "|" => (BITS, Function::BitOr),
                "#" => (BITS, Function::BitXor),
                "&" => (BITS, Function::BitAnd),
                "<<" => (BITS, Function::ShiftLeft),
                ">>" => (BITS, Function::ShiftRight),
                "+" => (SUM, Function::Add),
                "-" => (SUM, Function::Subtract),
                "*" => (PRODUCT, Function::Multiply),
                "/" => (PRODUCT, Function::Divide),
                "%" => (PRODUCT, Function::Modulo),
                _ => return None,
            },
            _ => return None,
        };
        Some((level, function, false))
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.next).map(|(_, token)| *token)
    }

    fn take(&mut self, keyword: &str) -> bool {
        let taken = match self.peek() {
            Some(Token::Word(word)) => word.eq_ignore_ascii_case(keyword),
            _ => false,
        };
        self.next += usize::from(taken);
        taken
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), SyntaxError> {
        if self.peek() != Some(Token::Symbol(symbol)) {
            return Err(self.unexpected());
        }
        self.next += 1;
        Ok(())
    }

    fn leaf(&mut self, leaf: Parsed) -> Result<Parsed, SyntaxError> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(self.mistake("expression is too long"));
        }
        Ok(leaf)
    }

    fn call(&mut self, function: Function, arguments: Vec<Parsed>) -> Result<Parsed, SyntaxError> {
        self.leaf(Expression::Call(function, arguments.into()))
    }

    fn unexpected(&self) -> SyntaxError {
        match self.peek() {
            None => self.mistake("unexpected end of the expression"),
            Some(Token::Integer(number)) => self.mistake(format!("unexpected number {number}")),
            Some(Token::Double(number)) => self.mistake(format!("unexpected number {number}")),
            Some(Token::Beyond) => self.mistake("integer is out of range"),
            Some(Token::Variable(name)) => self.mistake(format!("unexpected variable :{name}")),
            Some(Token::Word(word)) => self.mistake(format!("unexpected word {word:?}")),
            Some(Token::Symbol(symbol)) => self.mistake(format!("unexpected {symbol:?}")),
        }
    }

    fn mistake(&self, message: impl Into<String>) -> SyntaxError {
        let at = self.tokens.get(self.next).map_or(self.end, |(at, _)| *at);
        SyntaxError::new(at, message)
    }
}

fn constant(word: &str) -> Option<Scalar> {
    let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
    match () {
        () if is("null") => Some(Scalar::Null),
        () if is("true") => Some(Scalar::Boolean(true)),
        () if is("false") => Some(Scalar::Boolean(false)),
        () => None,
    }
}

// How tightly operators bind.
const LOWEST: u8 = 0;
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const IS: u8 = 4;
const COMPARISON: u8 = 5;
const BITS: u8 = 6;
const SUM: u8 = 7;
const PRODUCT: u8 = 8;
const UNARY: u8 = 9;

// Parsing, evaluating and dropping recurse: these keep any text from exhausting the stack. A chain
// of a left-associative operator is as deep as it is long.
const NESTING_MAX: usize = 100;
const NODES_MAX: usize = 1000;
