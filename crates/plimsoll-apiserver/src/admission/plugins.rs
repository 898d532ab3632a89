//! Which admission plugins are on: upstream's names, defaults (`pkg/kubeapiserver/options/plugins.go`) and flags
//! (`pkg/server/options/admission.go` of the apiserver library).

/// An admission plugin that this server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// Nothing is created in namespaces that are missing or being deleted.
    NamespaceLifecycle,
    /// Defaults and bounds of LimitRanges.
    LimitRanger,
    /// Accounts, pull secrets and tokens of pods.
    ServiceAccount,
    /// What kubelets may write.
    NodeRestriction,
    /// Taint of new nodes.
    TaintNodesByCondition,
    /// Pod Security Standards.
    PodSecurity,
    /// Numbers of priority classes.
    Priority,
    /// Tolerations of nodes that are not ready or unreachable.
    DefaultTolerationSeconds,
    /// Class of claims that name none.
    DefaultStorageClass,
    /// Finalizers of volumes and claims.
    StorageObjectInUseProtection,
    /// Which users may set owners.
    OwnerReferencesPermissionEnforcement,
    /// Which claims grow.
    PersistentVolumeClaimResize,
    /// Overhead and scheduling of runtime classes.
    RuntimeClass,
    /// Which users approve requests for certificates.
    CertificateApproval,
    /// Which users sign them.
    CertificateSigning,
    /// Class of Ingresses that name none.
    DefaultIngressClass,
    /// Zone and region of the node as labels of pods.
    PodTopologyLabels,
    /// Which pods are resized.
    PodResizeValidator,
    /// Webhooks that change objects.
    MutatingAdmissionWebhook,
    /// Policies in CEL.
    ValidatingAdmissionPolicy,
    /// Webhooks that look at objects.
    ValidatingAdmissionWebhook,
    /// Quotas of namespaces.
    ResourceQuota,
}

/// A name of upstream's, the plugin where this server has it, and whether it is on by default.
type Row = (&'static str, Option<Plugin>, bool);

/// `AllOrderedPlugins` and `DefaultOffAdmissionPlugins`.
const ROWS: [Row; 41] = [
    ("AlwaysAdmit", None, false),
    ("NamespaceAutoProvision", None, false),
    ("NamespaceLifecycle", Some(Plugin::NamespaceLifecycle), true),
    ("NamespaceExists", None, false),
    ("LimitPodHardAntiAffinityTopology", None, false),
    ("LimitRanger", Some(Plugin::LimitRanger), true),
    ("ServiceAccount", Some(Plugin::ServiceAccount), true),
    ("NodeRestriction", Some(Plugin::NodeRestriction), false),
    ("TaintNodesByCondition", Some(Plugin::TaintNodesByCondition), true),
    ("AlwaysPullImages", None, false),
    ("ImagePolicyWebhook", None, false),
    ("PodSecurity", Some(Plugin::PodSecurity), true),
    ("PodNodeSelector", None, false),
    ("Priority", Some(Plugin::Priority), true),
    ("DefaultTolerationSeconds", Some(Plugin::DefaultTolerationSeconds), true),
    ("PodTolerationRestriction", None, false),
    ("EventRateLimit", None, false),
    ("ExtendedResourceToleration", None, false),
    ("DefaultStorageClass", Some(Plugin::DefaultStorageClass), true),
    ("StorageObjectInUseProtection", Some(Plugin::StorageObjectInUseProtection), true),
    ("PodGroupProtection", None, true),
    ("OwnerReferencesPermissionEnforcement", Some(Plugin::OwnerReferencesPermissionEnforcement), false),
    ("PersistentVolumeClaimResize", Some(Plugin::PersistentVolumeClaimResize), true),
    ("RuntimeClass", Some(Plugin::RuntimeClass), true),
    ("CertificateApproval", Some(Plugin::CertificateApproval), true),
    ("CertificateSigning", Some(Plugin::CertificateSigning), true),
    ("ClusterTrustBundleAttest", None, true),
    ("CertificateSubjectRestriction", None, true),
    ("DefaultIngressClass", Some(Plugin::DefaultIngressClass), true),
    ("DenyServiceExternalIPs", None, false),
    ("PodTopologyLabels", Some(Plugin::PodTopologyLabels), true),
    ("PodGroupWorkloadExists", None, true),
    ("NodeDeclaredFeatureValidator", None, true),
    ("JobValidation", None, true),
    ("PodResizeValidator", Some(Plugin::PodResizeValidator), true),
    ("MutatingAdmissionPolicy", None, true),
    ("MutatingAdmissionWebhook", Some(Plugin::MutatingAdmissionWebhook), true),
    ("ValidatingAdmissionPolicy", Some(Plugin::ValidatingAdmissionPolicy), true),
    ("ValidatingAdmissionWebhook", Some(Plugin::ValidatingAdmissionWebhook), true),
    ("ResourceQuota", Some(Plugin::ResourceQuota), true),
    ("AlwaysDeny", None, false),
];

/// The plugins that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plugins(u32);

impl Default for Plugins {
    /// Those that are on by default upstream.
    fn default() -> Self {
        let on = ROWS.iter().filter(|(_, _, on)| *on).filter_map(|(_, plugin, _)| *plugin);
        Self(on.fold(0, |all, plugin| all | bit(plugin)))
    }
}

const fn bit(plugin: Plugin) -> u32 {
    1 << plugin as u32
}

impl Plugins {
    /// Whether a plugin is on.
    pub const fn has(self, plugin: Plugin) -> bool {
        self.0 & bit(plugin) != 0
    }

    /// These and another one.
    #[must_use]
    pub const fn with(self, plugin: Plugin) -> Self {
        Self(self.0 | bit(plugin))
    }

    /// These but one.
    #[must_use]
    pub const fn without(self, plugin: Plugin) -> Self {
        Self(self.0 & !bit(plugin))
    }

    /// The default ones with the names in `--enable-admission-plugins` and without those in
    /// `--disable-admission-plugins`.
    ///
    /// # Errors
    /// Names that are unknown, in both flags, or of plugins that this server does not have.
    pub fn choose(enable: &[String], disable: &[String]) -> Result<Self, String> {
        let row = |flag: &str, name: &String| {
            let row = ROWS.iter().find(|(known, ..)| known == name);
            row.ok_or_else(|| format!("{flag}-admission-plugins plugin {name:?} is unknown"))
        };
        let both: Vec<&str> = enable.iter().filter(|n| disable.contains(n)).map(String::as_str).collect();
        let mut chosen = Self::default();
        for name in disable {
            if let (_, Some(plugin), _) = row("disable", name)? {
                chosen = chosen.without(*plugin);
            }
        }
        for name in enable {
            match row("enable", name)? {
                (_, Some(plugin), _) => chosen = chosen.with(*plugin),
                _ => {
                    let why = "this server does not have it; remove it, or use a webhook or a policy instead";
                    return Err(format!("enable-admission-plugins plugin {name:?} is not available: {why}"));
                }
            }
        }
        if both.is_empty() {
            return Ok(chosen);
        }
        let both = both.join(" ");
        Err(format!("[{both}] in enable-admission-plugins and disable-admission-plugins overlapped"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upstreams() {
        let names = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let choose = |enable: &str, disable: &str| Plugins::choose(&names(enable), &names(disable));
        assert_eq!(choose("", ""), Ok(Plugins::default()));
        let chosen = choose("LimitRanger", "ServiceAccount PodNodeSelector").unwrap();
        assert!(!chosen.has(Plugin::ServiceAccount) && chosen.has(Plugin::LimitRanger));
        for (enable, disable, wanted) in [
            ("Pods", "", "enable-admission-plugins plugin \"Pods\" is unknown"),
            ("", "pods", "disable-admission-plugins plugin \"pods\" is unknown"),
            (
                "Priority LimitRanger",
                "LimitRanger",
                "[LimitRanger] in enable-admission-plugins and disable-admission-plugins overlapped",
            ),
            ("AlwaysPullImages", "", "enable-admission-plugins plugin \"AlwaysPullImages\" is not available"),
        ] {
            let error = choose(enable, disable).unwrap_err();
            assert!(error.starts_with(wanted), "{error}");
        }
    }
}
