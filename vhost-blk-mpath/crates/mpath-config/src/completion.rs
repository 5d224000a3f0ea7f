//! What shells complete: the values of an argument, and file names only where a file is meant.

use std::error::Error;
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, ValueHint};

/// A parser for a type with named values. Help and shells show the names. The errors are those of the type.
pub fn one_of<T>(names: impl Into<Vec<&'static str>>) -> OneOf<T> {
    OneOf { names: names.into(), of: PhantomData }
}

/// The parser of [`one_of`].
#[derive(Debug, Clone)]
pub struct OneOf<T> {
    names: Vec<&'static str>,
    of: PhantomData<fn() -> T>,
}

impl<T> TypedValueParser for OneOf<T>
where
    T: FromStr<Err: Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        T::from_str.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}

/// The command line for completion scripts: a value that is not declared as a file is none.
#[must_use]
pub fn completable(command: Command) -> Command {
    let is_undeclared = |arg: &Arg| arg.get_action().takes_values() && arg.get_value_hint() == ValueHint::Unknown;
    command
        .mut_args(|arg| if is_undeclared(&arg) { arg.value_hint(ValueHint::Other) } else { arg })
        .mut_subcommands(completable)
}
