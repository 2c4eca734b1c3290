//! What AWS profile files say besides credentials: region and endpoint, and that a role is to be taken on.

use ini::{Ini, Properties};

use crate::{Environment, VolumeError};

/// The settings of the profile in use, from the shared configuration and credentials files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// The profile's name and the key by which it takes on a role, if it does.
    role: Option<(String, &'static str)>,
}

/// Keys of a profile whose credentials are those of a role.
const ROLE: [&str; 4] = ["role_arn", "source_profile", "credential_source", "web_identity_token_file"];

impl Profile {
    /// Reads the profile that `AWS_PROFILE` names, else the one called default, if there is one.
    ///
    /// # Errors
    /// `Usage` if the profile that was named is in neither file, or a file is not valid.
    pub(crate) async fn read(environment: &Environment) -> Result<Self, VolumeError> {
        let named = environment.variable("AWS_PROFILE").filter(|name| !name.is_empty());
        let name = named.unwrap_or("default");
        let config = load(environment, "AWS_CONFIG_FILE", ".aws/config").await?;
        let credentials = load(environment, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials").await?;
        let section = if name == "default" { name.to_owned() } else { format!("profile {name}") };
        let config = config.as_ref().and_then(|file| file.section(Some(section)));
        let credentials = credentials.as_ref().and_then(|file| file.section(Some(name)));
        if named.is_some() && config.is_none() && credentials.is_none() {
            return Err(VolumeError::usage(format!(
                "AWS_PROFILE is {name}, but neither ~/.aws/config nor ~/.aws/credentials has that profile: name one that is there"
            )));
        }
        let value = |key: &str| {
            let of = |properties: &Properties| properties.get(key).map(str::to_owned);
            config.and_then(of).or_else(|| credentials.and_then(of))
        };
        let role = ROLE.into_iter().find(|key| value(key).is_some()).map(|key| (name.to_owned(), key));
        Ok(Self { region: value("region"), endpoint: value("endpoint_url"), role })
    }

    /// Refuses a profile that takes on a role, unless the environment has keys, which come first: other credentials than those that
    /// were meant would be used in its place.
    ///
    /// # Errors
    /// `Usage` that names the profile and the key.
    pub(crate) fn check_role(&self, environment: &Environment) -> Result<(), VolumeError> {
        let has_keys = environment.variable("AWS_ACCESS_KEY_ID").is_some_and(|key| !key.is_empty());
        let Some((name, key)) = self.role.as_ref().filter(|_| !has_keys) else { return Ok(()) };
        Err(VolumeError::usage(format!(
            "the AWS profile {name} takes on a role ({key}), which is not supported: put the role's credentials into the environment with \
             `aws configure export-credentials --profile {name} --format env`, or use that command as the credential_process of another profile"
        )))
    }
}

/// A file of profiles; `None` if there is none.
async fn load(environment: &Environment, variable: &str, default: &str) -> Result<Option<Ini>, VolumeError> {
    let given = environment.variable(variable).map(str::to_owned);
    let Some(path) = given.or_else(|| environment.variable("HOME").map(|home| format!("{home}/{default}"))) else {
        return Ok(None);
    };
    let Ok(text) = tokio::fs::read_to_string(&path).await else { return Ok(None) };
    // The parser's own message may repeat a line, and a line may be a secret.
    Ini::load_from_str(&text).map(Some).map_err(|error| {
        VolumeError::usage(format!("the AWS profile file {path} is not valid at line {}: mend it", error.line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_profile_in_use_gives_region_and_endpoint() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        std::fs::write(
            &config,
            "[default]\nregion = eu-west-1\n[profile lab]\nregion=us-west-2\nendpoint_url = http://h:1\n",
        )
        .unwrap();
        let of = async |profile: &str| {
            let variables = [("AWS_PROFILE", profile), ("AWS_CONFIG_FILE", config.to_str().unwrap())];
            let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
            Profile::read(&Environment::new(variables)).await
        };
        assert_eq!(of("").await.unwrap().region.as_deref(), Some("eu-west-1"));
        let lab = of("lab").await.unwrap();
        assert_eq!((lab.region.as_deref(), lab.endpoint.as_deref()), (Some("us-west-2"), Some("http://h:1")));
        lab.check_role(&Environment::empty()).unwrap();
        std::fs::write(&config, "[profile lab]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = other\n").unwrap();
        let role = of("lab").await.unwrap();
        let error = role.check_role(&Environment::empty()).unwrap_err();
        assert!(error.message.contains("profile lab takes on a role (role_arn)"), "{error}");
        let keys = Environment::new([("AWS_ACCESS_KEY_ID".to_owned(), "k".to_owned())]);
        role.check_role(&keys).unwrap();
        assert!(of("none").await.unwrap_err().message.contains("AWS_PROFILE is none"));
        std::fs::write(&config, "[default]\naws_secret_access_key\nhunter2 = = [\n[").unwrap();
        let error = of("").await.unwrap_err();
        assert!(error.message.contains("not valid") && !error.message.contains("hunter2"), "{error}");
    }
}
