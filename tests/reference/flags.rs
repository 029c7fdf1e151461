//! Flags, their variables and their defaults, as clap knows them.

use std::fmt::Write as _;

use clap::{Arg, Args as _, Command};
use spanplane::config::ServeArgs;

use crate::{
    page::{all, cell, check_section, found},
    support::program::Place,
};

fn flags() -> Command {
    ServeArgs::augment_args(Command::new("serve"))
}

#[test]
fn the_flags_of_serve_are_those_that_it_knows() {
    let command = flags();
    let mut made = String::new();
    let mut heading = "";
    for flag in command.get_arguments() {
        let own = flag.get_help_heading().unwrap();
        if own != heading {
            heading = own;
            write!(made, "\n### {heading}\n\n| flag | variable | default | |\n").unwrap();
            made.push_str("| --- | --- | --- | --- |\n");
        }
        made.push_str(&row(flag));
    }
    made.push('\n');
    check_section("flags", &made);
}

fn row(flag: &Arg) -> String {
    let mut names = format!("`--{}", flag.get_long().unwrap());
    let values: Vec<_> = flag
        .get_possible_values()
        .iter()
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let needs_value = |flag: &Arg| flag.get_num_args().unwrap_or_default().min_values() > 0;
    let is_switch = !flag.get_action().takes_values() || !needs_value(flag);
    if !is_switch {
        write!(names, " {}", flag.get_value_names().unwrap()[0]).unwrap();
    }
    names.push('`');
    for alias in flag.get_visible_aliases().unwrap_or_default() {
        write!(names, ", `--{alias}`").unwrap();
    }
    if let Some(short) = flag.get_short() {
        write!(names, ", `-{short}`").unwrap();
    }
    let variable = flag.get_env().map(|name| format!("`{}`", name.display()));
    let help = flag.get_help().unwrap().to_string();
    // A default that is no value is told in words.
    let (help, in_words) = help.split_once(" [default: ").unwrap_or((&help, ""));
    let default = match flag.get_default_values() {
        [default] if !is_switch => format!("`{}`", default.display()),
        _ => in_words.trim_end_matches(']').to_owned(),
    };
    let mut meaning = cell(help);
    if !is_switch && !values.is_empty() {
        write!(meaning, ": {}", values.join(", ")).unwrap();
    }
    format!(
        "| {names} | {} | {} | {meaning} |\n",
        variable.unwrap_or_default(),
        cell(&default)
    )
}

#[tokio::test]
async fn no_flag_of_the_program_is_missing_and_none_is_made_up() {
    let place = Place::new();
    let mut help = String::new();
    let commands = "demo view ls show diff why history health quarantine completions".split(' ');
    for command in std::iter::once(None).chain(commands.map(Some)) {
        let arguments: Vec<_> = command.into_iter().chain(["--help"]).collect();
        let output = place.output(&arguments).await;
        help.push_str(&String::from_utf8(output.stdout).unwrap());
    }
    assert_eq!(all("--[a-z][a-z-]+"), found("--[a-z][a-z-]+", &help));
}

#[test]
fn no_variable_of_ours_is_made_up() {
    let command = flags();
    let known = command.get_arguments().filter_map(Arg::get_env);
    let known: Vec<_> = known.map(|name| name.to_str().unwrap()).collect();
    for name in all("SPANPLANE_[A-Z_]+") {
        assert!(known.contains(&name.as_str()), "{name}");
    }
}
