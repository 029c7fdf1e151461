//! What is on every page: head, landmarks, the way back, help.

use maud::{DOCTYPE, Markup, html};

use super::assets::{ICON, SCRIPT, STYLE};

/// Keys that work where scripts do.
const KEYS: [(&str, &str); 6] = [
    ("j k", "next and previous row"),
    ("← ↑ ↓ →", "through the matrix"),
    ("Enter", "open"),
    ("/", "search or filter"),
    ("Esc", "close"),
    ("?", "this help"),
];

/// A page around its content.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) title: String,
    /// Where this is: addresses and names, from the list on down, without the page itself.
    pub(super) trail: Vec<(String, String)>,
}

impl Page {
    pub(super) fn render(&self, content: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · spanplane" }
                    link rel="icon" href=(ICON.address) type="image/svg+xml";
                    link rel="stylesheet" href=(STYLE.address);
                    script src=(SCRIPT.address) defer {}
                }
                body {
                    a class="skip" href="#content" { "Skip to content" }
                    header class="top" {
                        a class="brand" href="/" {
                            img src=(ICON.address) alt="" width="20" height="20";
                            "spanplane"
                        }
                        nav aria-label="Breadcrumb" {
                            ol class="trail" {
                                @for (address, name) in &self.trail {
                                    li { a href=(address) { (name) } }
                                }
                                @if !self.trail.is_empty() {
                                    li aria-current="page" { (self.title) }
                                }
                            }
                        }
                        button class="quiet help-button" type="button" data-help hidden
                            aria-label="Keyboard help" { "?" }
                    }
                    main id="content" tabindex="-1" { (content) }
                    (help())
                }
            }
        }
    }
}

fn help() -> Markup {
    html! {
        dialog class="help" aria-labelledby="help-title" {
            h2 id="help-title" { "Keys" }
            dl {
                @for (keys, what) in KEYS {
                    dt { @for key in keys.split(' ') { kbd { (key) } " " } }
                    dd { (what) }
                }
            }
            form method="dialog" { button type="submit" { "Close" } }
        }
    }
}
