//! Reads collections in flow style, as far as they are closed.

use super::{
    Unsure, Value,
    flow::{Token, Tokens, Unclosed},
    inside::{has_pair, has_secret},
    lines::unquoted,
    outline::Outline,
    place::{Place, Says, What, Written},
};
use crate::redact::{
    MAX_DEPTH,
    edits::{Form, push_bounded},
};

/// A collection that is being read.
#[derive(Debug)]
struct Collection<'t> {
    place: Place<'t>,
    /// The key that went by last, and where its colon is.
    key: Option<(&'t str, usize)>,
    /// The scalar that went by last: a key, if a colon follows.
    scalar: Option<(usize, usize)>,
    /// The data of something that is being read, among all values.
    data: Option<usize>,
    says: Says,
    values: usize,
}

impl<'t> Collection<'t> {
    fn new(place: Place<'t>, values: usize) -> Self {
        Self {
            place,
            key: None,
            scalar: None,
            data: None,
            says: Says::default(),
            values,
        }
    }
}

impl<'t> Outline<'t, '_> {
    /// Reads the collection that begins here, and tells where it ends if it does.
    pub(super) fn read_flow(
        &mut self,
        start: usize,
        place: Place<'t>,
    ) -> Result<Option<usize>, Unsure> {
        let before = self.values.len();
        let had_odd_key = self.has_odd_key;
        let mut tokens = Tokens::new(self.text, start);
        let mut stack: Vec<Collection<'t>> = Vec::new();
        let end = loop {
            let Ok(token) = tokens.read() else {
                break None;
            };
            if self.take_token(token, &tokens, place, &mut stack)?.is_err() {
                break None;
            }
            if tokens.is_done() {
                break Some(tokens.end());
            }
        };
        if end.is_none() {
            // What isn't flow style has no members, and may be full of what looks like some.
            self.values.truncate(before);
            self.has_odd_key = had_odd_key;
        } else if has_secret(self.text.get(start..tokens.end()).unwrap_or_default()) {
            return Err(Unsure::Secret);
        }
        Ok(end)
    }

    fn take_token(
        &mut self,
        token: Token,
        tokens: &Tokens<'_>,
        top: Place<'t>,
        stack: &mut Vec<Collection<'t>>,
    ) -> Result<Result<(), Unclosed>, Unsure> {
        let depth = self.depth() + stack.len();
        match token {
            Token::Open { is_mapping } => {
                if stack.len() >= MAX_DEPTH {
                    return Ok(Err(Unclosed));
                }
                let place = match stack.last() {
                    Some(around) => match around.key {
                        Some((key, _)) => around.place.below(key, self.rules),
                        None => around.place,
                    },
                    None => top,
                };
                let is_item = stack.last().is_some_and(|around| around.key.is_none());
                let place = if is_mapping {
                    place.of_members(is_item)
                } else {
                    place
                };
                stack.push(Collection::new(place, self.values.len()));
            }
            Token::Colon => {
                if let Some(around) = stack.last_mut() {
                    let key = around.scalar.take();
                    let key = key.and_then(|(start, end)| self.text.get(start..end));
                    let key = unquoted(key.unwrap_or_default());
                    around.key = Some((key, tokens.end()));
                    self.has_merge |= key == "<<";
                    self.has_odd_key |= key.starts_with(['?', '!', '&', '*']);
                    let what = match key {
                        "data" => What::Data,
                        "stringData" => What::SecretData,
                        _ => return Ok(Ok(())),
                    };
                    around.data = Some(self.values.len());
                    self.add(tokens.end(), tokens.end(), what, depth, Form::Yaml)?;
                }
            }
            Token::Scalar(span) => {
                if let Some(around) = stack.last_mut() {
                    around.scalar = Some((span.start, span.end));
                }
            }
            Token::Comma => self.end_member(tokens.end() - 1, depth, stack)?,
            Token::Close => {
                self.end_member(tokens.end() - 1, depth, stack)?;
                if let Some(ended) = stack.pop() {
                    self.has_secret |= ended.says.is_secret();
                    self.end_mapping(ended.values, depth, ended.says);
                }
            }
        }
        Ok(Ok(()))
    }

    /// Ends the member, or the item, before this place.
    fn end_member(
        &mut self,
        end: usize,
        depth: usize,
        stack: &mut [Collection<'t>],
    ) -> Result<(), Unsure> {
        let Some(around) = stack.last_mut() else {
            return Ok(());
        };
        if let Some(data) = around.data.take()
            && let Some(value) = self.values.get_mut(data)
        {
            value.end = end;
        }
        let key = around.key.take();
        let scalar = around.scalar.take();
        let text = scalar.and_then(|(start, end)| self.text.get(start..end));
        let text = text.unwrap_or_default();
        let written = Written::of(text);
        self.is_unsure |= has_pair(text, self.rules);
        let what = match key {
            Some((key, _)) => {
                around.says.listen(key, text, self.rules);
                around.place.judge(key, text, written, self.rules)
            }
            None => around.place.of_members(true).judge_item(written),
        };
        let Some((start, end)) = scalar else {
            return Ok(());
        };
        let what = self.doubt(what, written);
        if what != What::Nothing {
            // What was JSON stays JSON.
            let (start, form) = match key {
                _ if text.starts_with('"') => (start, Form::Json { strings_around: 0 }),
                Some((_, colon)) => (colon, Form::Yaml),
                None => (start, Form::Yaml),
            };
            self.add(start, end, what, depth, form)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        start: usize,
        end: usize,
        what: What,
        depth: usize,
        form: Form,
    ) -> Result<(), Unsure> {
        let value = Value {
            start,
            end,
            column: 0,
            depth,
            what,
            form,
        };
        push_bounded(&mut self.values, value)?;
        Ok(())
    }
}
