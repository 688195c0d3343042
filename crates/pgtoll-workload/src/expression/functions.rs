//! Functions of expressions, operators included.

/// A function of expressions. `>` and `>=` are their mirror images, `-x` is `0 - x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Or,
    And,
    Not,
    Is,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    BitOr,
    BitXor,
    BitAnd,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    /// Condition and value in turn, then the value otherwise.
    Case,
    Abs,
    Debug,
    Double,
    Exp,
    Greatest,
    HashFnv1a,
    HashMurmur2,
    Int,
    Least,
    Ln,
    Permute,
    Pi,
    Power,
    Random,
    RandomExponential,
    RandomGaussian,
    RandomZipfian,
    Sqrt,
}

/// A function that is called by its name.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) function: Function,
    /// Fewest and most arguments.
    pub(crate) arguments: (usize, usize),
}

impl Named {
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        NAMED.iter().find(|named| named.name.eq_ignore_ascii_case(name))
    }

    /// The last argument is `:default_seed` where it is missing.
    pub(crate) fn has_default_seed(&self) -> bool {
        matches!(self.function, Function::HashFnv1a | Function::HashMurmur2 | Function::Permute)
    }
}

/// pgbench's limit as well.
pub(crate) const ARGUMENTS_MAX: usize = 16;

/// The names of functions; the first one is printed.
const NAMED: [Named; 21] = [
    named("abs", Function::Abs, (1, 1)),
    named("debug", Function::Debug, (1, 1)),
    named("double", Function::Double, (1, 1)),
    named("exp", Function::Exp, (1, 1)),
    named("greatest", Function::Greatest, (1, ARGUMENTS_MAX)),
    named("hash", Function::HashMurmur2, (1, 2)),
    named("hash_fnv1a", Function::HashFnv1a, (1, 2)),
    named("hash_murmur2", Function::HashMurmur2, (1, 2)),
    named("int", Function::Int, (1, 1)),
    named("least", Function::Least, (1, ARGUMENTS_MAX)),
    named("ln", Function::Ln, (1, 1)),
    named("mod", Function::Modulo, (2, 2)),
    named("permute", Function::Permute, (2, 3)),
    named("pi", Function::Pi, (0, 0)),
    named("pow", Function::Power, (2, 2)),
    named("power", Function::Power, (2, 2)),
    named("random", Function::Random, (2, 2)),
    named("random_exponential", Function::RandomExponential, (3, 3)),
    named("random_gaussian", Function::RandomGaussian, (3, 3)),
    named("random_zipfian", Function::RandomZipfian, (3, 3)),
    named("sqrt", Function::Sqrt, (1, 1)),
];

const fn named(name: &'static str, function: Function, arguments: (usize, usize)) -> Named {
    Named { name, function, arguments }
}

impl Function {
    /// It takes and makes numbers, and depends on nothing else.
    pub(crate) fn is_arithmetic(self) -> bool {
        matches!(
            self,
            Self::BitOr
                | Self::BitXor
                | Self::BitAnd
                | Self::ShiftLeft
                | Self::ShiftRight
                | Self::Add
                | Self::Subtract
                | Self::Multiply
                | Self::Divide
                | Self::Modulo
        )
    }

    /// The operator between two operands; empty for what is none.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Or => "OR",
            Self::And => "AND",
            Self::Is => "IS",
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::BitOr => "|",
            Self::BitXor => "#",
            Self::BitAnd => "&",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
            _ => "",
        }
    }

    /// The name it is called by; empty for what is no call.
    pub(crate) fn name(self) -> &'static str {
        NAMED.iter().find(|named| named.function == self).map_or("", |named| named.name)
    }
}
