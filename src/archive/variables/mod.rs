//! The variables that set up a store's client, and what can be wrong with them.
//!
//! `object_store` keeps most of them as they are until it sends a request with them, and panics on
//! some that it can't send. Invariant: what can be known to be wrong is told when the client is
//! made, by the name of the variable. No value that may be a credential is ever shown.

use std::{collections::BTreeMap, env, ffi::OsString, fmt, str::FromStr};

use object_store::{
    ClientConfigKey, aws::AmazonS3ConfigKey, azure::AzureConfigKey, gcp::GoogleConfigKey,
};
use url::Url;

const S3_ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
const AZURE_ENDPOINTS: [&str; 2] = ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"];

/// Variables that set up a store's client. Their values are never shown. An empty one counts as
/// unset, as it does for the clouds' own programs.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Those of this process.
    pub fn of_process() -> Self {
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        env::vars_os().filter_map(text).collect()
    }

    /// Where the store is, if not where its cloud is.
    pub fn endpoint(&self) -> Option<&str> {
        self.s3_endpoint().or_else(|| self.azure_endpoint())
    }

    pub(super) fn s3_endpoint(&self) -> Option<&str> {
        self.first_of(&S3_ENDPOINTS)
    }

    pub(super) fn azure_endpoint(&self) -> Option<&str> {
        self.first_of(&AZURE_ENDPOINTS)
    }

    /// The account that Azure's client is made for.
    pub(super) fn azure_account(&self) -> Option<&str> {
        let accounts = self.known::<AzureConfigKey>("AZURE_");
        let accounts = accounts.filter(|(_, key, _)| *key == AzureConfigKey::AccountName);
        accounts.map(|(.., account)| account).last()
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn first_of(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    fn without(&self, name: &str) -> Self {
        let mut fewer = self.clone();
        fewer.0.remove(name);
        fewer
    }

    /// Those of a cloud that its client knows.
    fn known<K: FromStr>(&self, prefix: &str) -> impl Iterator<Item = (&str, K, &str)> {
        self.0.iter().filter_map(move |(name, value)| {
            let key = name
                .starts_with(prefix)
                .then(|| name.to_ascii_lowercase().parse())?;
            Some((name.as_str(), key.ok()?, value.as_str()))
        })
    }

    /// Hands those of a cloud to a builder.
    pub(super) fn apply<B, K: FromStr>(
        &self,
        prefix: &str,
        builder: B,
        with_config: impl Fn(B, K, String) -> B,
    ) -> B {
        let known = self.known(prefix);
        known.fold(builder, |builder, (_, key, value)| {
            with_config(builder, key, value.to_owned())
        })
    }

    /// Makes a client of those of a cloud, or says everything that is wrong with them.
    pub(super) fn make<K: Setting, C>(
        &self,
        make: impl Fn(&Self) -> object_store::Result<C>,
    ) -> Result<C, Vec<String>> {
        let mut mistakes = K::missing(self);
        for (name, form, value) in self.forms::<K>() {
            mistakes.extend(form.mistake(value).map(|what| format!("{name}: {what}")));
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        make(self).map_err(|error| vec![self.blame::<K>(&error, |fewer| make(fewer).is_ok())])
    }

    fn forms<K: Setting>(&self) -> impl Iterator<Item = (&str, Form, &str)> {
        let known = self.known::<K>(K::PREFIX);
        let known = known.map(|(name, key, value)| (name, key.form(), value));
        let besides = K::BESIDES.iter().filter_map(|(name, form)| {
            let (name, value) = self.0.get_key_value(*name)?;
            Some((name.as_str(), *form, value.as_str()))
        });
        known.chain(besides)
    }

    /// Which of them is to blame: the one without which it would work.
    fn blame<K: Setting>(
        &self,
        error: &object_store::Error,
        works: impl Fn(&Self) -> bool,
    ) -> String {
        let culprit = self
            .forms::<K>()
            .find(|(name, ..)| works(&self.without(name)));
        let said = error.to_string().replace(['\n', '\r'], " ");
        match culprit {
            Some((name, form, _)) if form.is_secret() => {
                format!("{name}: the store's client can't read this value")
            }
            Some((name, ..)) => format!("{name}: {said}"),
            None => format!("{}* variables: {said}", K::PREFIX),
        }
    }
}

impl<N: Into<String>> FromIterator<(N, N)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, N)>>(variables: I) -> Self {
        let named = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        Self(named.filter(|(_, value)| !value.is_empty()).collect())
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

/// What a variable has to look like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// `http://` or `https://`, and a host.
    Url,
    /// Part of a host's name.
    Name,
    /// Travels in a header, or signs one.
    Credential,
    /// A credential of several lines, or an address that may hold one.
    Secret,
    /// On one line.
    Text,
    /// Anything.
    Free,
}

impl Form {
    fn is_secret(self) -> bool {
        matches!(self, Self::Credential | Self::Secret)
    }

    /// What is wrong with a value, and what to do about it.
    fn mistake(self, value: &str) -> Option<String> {
        match self {
            Self::Url => url_mistake(value),
            Self::Name => {
                let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
                (!value.bytes().all(is_part)).then(|| {
                    "this may hold letters, digits and dashes only; check it for quotes and spaces"
                        .to_owned()
                })
            }
            Self::Credential => (!value.bytes().all(|byte| byte.is_ascii_graphic())).then(|| {
                "this holds a space, a line break or another character that no key has; \
                     secrets made from files often end in a line break"
                    .to_owned()
            }),
            Self::Text => value
                .chars()
                .any(char::is_control)
                .then(|| "this holds a line break or another control character".to_owned()),
            Self::Secret | Self::Free => None,
        }
    }
}

fn url_mistake(value: &str) -> Option<String> {
    let shown = without_credentials(value);
    if value.trim() != value || value.contains(char::is_control) {
        return Some("there are spaces or line breaks around this URL; remove them".to_owned());
    }
    if !value.contains("://") {
        return Some(format!(
            "{shown:?} has no scheme; write http://{shown} or https://{shown}"
        ));
    }
    let Ok(url) = Url::parse(value) else {
        return Some(format!(
            "{shown:?} is not a URL; write https://host, or https://host:port"
        ));
    };
    if !["http", "https"].contains(&url.scheme()) {
        return Some(format!(
            "{shown:?} begins with neither http:// nor https://"
        ));
    }
    // NOTE: the parser takes http:///path for one with the host `path`.
    let host = value.split_once("://").map(|(_, rest)| rest);
    if !url.has_host() || host.is_some_and(|host| host.starts_with('/')) {
        return Some(format!("{shown:?} has no host; write https://host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("this URL holds a user or a password; use the variables for keys".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Some(format!(
            "there is a ? or a # behind {shown:?}; remove what follows"
        ));
    }
    None
}

/// A setting of a cloud's client.
pub(super) trait Setting: FromStr {
    const PREFIX: &'static str;
    /// Variables that other programs named, without the prefix.
    const BESIDES: &'static [(&'static str, Form)];

    fn form(&self) -> Form;

    /// Those without which others make no sense.
    fn missing(_: &Variables) -> Vec<String> {
        Vec::new()
    }
}

impl Setting for AmazonS3ConfigKey {
    const PREFIX: &'static str = "AWS_";
    const BESIDES: &'static [(&'static str, Form)] = &[];

    fn form(&self) -> Form {
        match self {
            Self::Endpoint
            | Self::S3Endpoint
            | Self::MetadataEndpoint
            | Self::StsEndpoint
            | Self::ContainerCredentialsFullUri => Form::Url,
            Self::Region | Self::DefaultRegion => Form::Name,
            Self::AccessKeyId | Self::SecretAccessKey | Self::Token => Form::Credential,
            // Its type can't be named.
            Self::Encryption(key) if key.as_ref() == "aws_sse_customer_key_base64" => {
                Form::Credential
            }
            Self::Client(key) => form_of_client(*key),
            _ => Form::Text,
        }
    }

    fn missing(variables: &Variables) -> Vec<String> {
        let names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        match names.map(|name| variables.get(name).is_some()) {
            [true, false] => vec![format!(
                "{}: this is not set, but {} is",
                names[1], names[0]
            )],
            [false, true] => vec![format!(
                "{}: this is not set, but {} is",
                names[0], names[1]
            )],
            _ => Vec::new(),
        }
    }
}

impl Setting for AzureConfigKey {
    const PREFIX: &'static str = "AZURE_";
    const BESIDES: &'static [(&'static str, Form)] = &[("IDENTITY_ENDPOINT", Form::Url)];

    fn form(&self) -> Form {
        match self {
            Self::Endpoint
            | Self::MsiEndpoint
            | Self::AuthorityHost
            | Self::FabricTokenServiceUrl => Form::Url,
            Self::AccountName => Form::Name,
            Self::AccessKey
            | Self::ClientSecret
            | Self::SasKey
            | Self::Token
            | Self::FabricSessionToken
            | Self::EncryptionKey => Form::Credential,
            Self::Client(key) => form_of_client(*key),
            _ => Form::Text,
        }
    }

    fn missing(variables: &Variables) -> Vec<String> {
        let mut known = variables.known::<Self>(Self::PREFIX);
        let names_account =
            known.any(|(_, key, _)| matches!(key, Self::AccountName | Self::UseEmulator));
        if names_account {
            return Vec::new();
        }
        vec![
            "AZURE_STORAGE_ACCOUNT_NAME: this is not set; az:// names the container only"
                .to_owned(),
        ]
    }
}

impl Setting for GoogleConfigKey {
    const PREFIX: &'static str = "GOOGLE_";
    const BESIDES: &'static [(&'static str, Form)] = &[("SERVICE_ACCOUNT", Form::Text)];

    fn form(&self) -> Form {
        match self {
            Self::BaseUrl => Form::Url,
            Self::ServiceAccountKey => Form::Secret,
            Self::BearerToken => Form::Credential,
            Self::Client(key) => form_of_client(*key),
            _ => Form::Text,
        }
    }
}

fn form_of_client(key: ClientConfigKey) -> Form {
    match key {
        ClientConfigKey::ProxyUrl => Form::Secret,
        ClientConfigKey::ProxyCaCertificate => Form::Free,
        _ => Form::Text,
    }
}

/// A URL without user info and query, where credentials could stand.
pub(super) fn without_credentials(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        (None, Some((_, rest))) => rest.to_owned(),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests;
