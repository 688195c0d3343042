//! Scripts as they are run: a flat list of steps over slots of variables.

use std::sync::Arc;

use pgtoll_wire::{Connection, PreparedStatement};

use crate::expression::{Expression, Function, Scalar, Slot, Value, Variables};
use crate::script::{Action, Amount, Capture, Statement};
use crate::syntax::is_name;
use crate::{LoadError, Script};

/// A script as one client runs it.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: Arc<str>,
    pub(crate) built_in: bool,
    pub(crate) steps: Vec<Step>,
}

/// The line of a step in its script's text.
#[derive(Clone, Debug)]
pub(crate) struct ScriptLine {
    pub(crate) script: Arc<str>,
    pub(crate) line: usize,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) kind: ProgramStep,
}

#[derive(Debug)]
pub(crate) enum ProgramStep {
    Execute(Box<Execution>),
    Set(Slot, Expression<Slot>),
    /// `Set` to a random number between bounds that are quickly found. This is most of what
    /// scripts compute, and the client's time is lost to the server.
    Draw(Slot, [Bound; 2], Expression<Slot>),
    Sleep {
        duration: Sleep,
        unit_us: u64,
    },
    JumpUnless(Expression<Slot>, usize),
    Jump(usize),
}

/// A bound of a random number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    Constant(i64),
    /// This many for each unit of a variable.
    Scaled(i64, Slot),
}

impl Bound {
    fn from_expression(expression: &Expression<Slot>) -> Option<Self> {
        match expression {
            Expression::Constant(Scalar::Integer(number)) => Some(Self::Constant(*number)),
            Expression::Call(Function::Multiply, factors) => match **factors {
                [Expression::Constant(Scalar::Integer(number)), Expression::Variable(slot)] => {
                    Some(Self::Scaled(number, slot))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// `None` where it takes more to find it, or to say why there is none.
    pub(crate) fn value(self, variables: &Variables) -> Option<i64> {
        match self {
            Self::Constant(number) => Some(number),
            Self::Scaled(number, slot) => match variables.value(slot) {
                Value::Scalar(Scalar::Integer(units)) => number.checked_mul(*units),
                _ => None,
            },
        }
    }
}

#[derive(Debug)]
pub(crate) enum Sleep {
    Constant(u64),
    Variable(Slot),
}

/// A statement with what it takes and gives.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) sql: String,
    /// `None` until what the statement works on is there.
    pub(crate) prepared: Option<PreparedStatement>,
    pub(crate) parameters: Vec<Slot>,
    pub(crate) capture: Option<Capture>,
    /// The variables of the columns; known when it is prepared.
    pub(crate) columns: Vec<Slot>,
}

impl Program {
    pub(crate) fn compile(script: &Script, variables: &mut Variables) -> Self {
        let mut compiler = Compiler { variables, steps: Vec::new(), open: Vec::new() };
        for command in script.commands() {
            compiler.command(command.line, &command.action);
        }
        let steps = compiler.steps;
        Self { name: script.name().into(), built_in: script.is_built_in(), steps }
    }

    /// Prepares all statements, but those that lack what an earlier one may create.
    pub(crate) fn prepare(
        &mut self,
        connection: &mut Connection,
        variables: &mut Variables,
    ) -> Result<(), LoadError> {
        for step in &mut self.steps {
            let ProgramStep::Execute(execution) = &mut step.kind else { continue };
            let place = ScriptLine { script: Arc::clone(&self.name), line: step.line };
            match execution.prepare(&place, connection, variables) {
                Err(LoadError::Server { source, .. }) if is_absence(&source) => {}
                prepared => prepared?,
            }
        }
        Ok(())
    }
}

/// Tables, functions, types and schemas that do not exist.
fn is_absence(error: &pgtoll_wire::Error) -> bool {
    let states = ["42P01", "42703", "42883", "42704", "3F000"];
    error.sqlstate().is_some_and(|state| states.contains(&state))
}

impl Execution {
    pub(crate) fn prepare(
        &mut self,
        place: &ScriptLine,
        connection: &mut Connection,
        variables: &mut Variables,
    ) -> Result<(), LoadError> {
        let prepared =
            connection.prepare(&self.sql).map_err(|source| place.server(&self.sql, source))?;
        if let Some(capture) = &self.capture {
            for column in prepared.columns() {
                let name = format!("{}{column}", capture.prefix);
                if !is_name(&name) {
                    return Err(place.column(name));
                }
                self.columns.push(variables.slot(&name));
            }
        }
        self.prepared = Some(prepared);
        Ok(())
    }
}

impl ScriptLine {
    pub(crate) fn server(&self, statement: &str, source: pgtoll_wire::Error) -> LoadError {
        let script = self.script.to_string();
        let line = self.line;
        LoadError::Server {
            script,
            line,
            statement: statement.to_owned(),
            source: Box::new(source),
        }
    }

    fn column(&self, column: String) -> LoadError {
        LoadError::Column { script: self.script.to_string(), line: self.line, column }
    }
}

struct Compiler<'a> {
    variables: &'a mut Variables,
    steps: Vec<Step>,
    open: Vec<Condition>,
}

/// An `\if` whose `\endif` has not come yet.
#[derive(Default)]
struct Condition {
    /// The jump over the current branch.
    over: Option<usize>,
    /// The jumps from the ends of branches to the end of all.
    out: Vec<usize>,
}

impl Compiler<'_> {
    fn command(&mut self, line: usize, action: &Action) {
        match action {
            Action::Execute(statement) => {
                let execution = self.execution(statement);
                self.step(line, ProgramStep::Execute(Box::new(execution)));
            }
            Action::Set { variable, expression } => {
                let expression = self.expression(expression);
                let slot = self.variables.slot(variable);
                let bounds = match &expression {
                    Expression::Call(Function::Random, bounds) => match &**bounds {
                        [from, to] => Bound::from_expression(from).zip(Bound::from_expression(to)),
                        _ => None,
                    },
                    _ => None,
                };
                self.step(
                    line,
                    match bounds {
                        Some((from, to)) => ProgramStep::Draw(slot, [from, to], expression),
                        None => ProgramStep::Set(slot, expression),
                    },
                );
            }
            Action::Sleep { amount, unit_us } => {
                let duration = match amount {
                    Amount::Constant(number) => Sleep::Constant(*number),
                    Amount::Variable(name) => Sleep::Variable(self.variables.slot(name)),
                };
                self.step(line, ProgramStep::Sleep { duration, unit_us: *unit_us });
            }
            Action::If(condition) => {
                self.open.push(Condition::default());
                self.branch(line, condition);
            }
            Action::ElseIf(condition) => {
                self.end_branch(line);
                self.branch(line, condition);
            }
            Action::Else => self.end_branch(line),
            Action::EndIf => {
                let Some(condition) = self.open.pop() else { return };
                for jump in condition.over.into_iter().chain(condition.out) {
                    self.jump_here(jump);
                }
            }
        }
    }

    fn execution(&mut self, statement: &Statement) -> Execution {
        let slots = statement.variables.iter().map(|name| self.variables.slot(name));
        Execution {
            sql: statement.sql.clone(),
            prepared: None,
            parameters: slots.collect(),
            capture: statement.capture.clone(),
            columns: Vec::new(),
        }
    }

    fn branch(&mut self, line: usize, condition: &Expression<String>) {
        let condition = self.expression(condition);
        let jump = self.step(line, ProgramStep::JumpUnless(condition, usize::MAX));
        if let Some(open) = self.open.last_mut() {
            open.over = Some(jump);
        }
    }

    fn end_branch(&mut self, line: usize) {
        let jump = self.step(line, ProgramStep::Jump(usize::MAX));
        let Some(open) = self.open.last_mut() else { return };
        open.out.push(jump);
        if let Some(over) = open.over.take() {
            self.jump_here(over);
        }
    }

    fn jump_here(&mut self, jump: usize) {
        let here = self.steps.len();
        if let ProgramStep::Jump(to) | ProgramStep::JumpUnless(_, to) = &mut self.steps[jump].kind {
            *to = here;
        }
    }

    fn expression(&mut self, expression: &Expression<String>) -> Expression<Slot> {
        expression.map(&mut |name| self.variables.slot(name))
    }

    fn step(&mut self, line: usize, kind: ProgramStep) -> usize {
        self.steps.push(Step { line, kind });
        self.steps.len() - 1
    }
}
