// Reads [{apiVersion, kind, ...}] from stdin, checks each against its CRD's schema, prints [{name, error}].
const sources = {
  "cert-manager.io/v1": "@kubernetes-models/cert-manager/cert-manager.io/v1",
  "gateway.networking.k8s.io/v1": "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1",
  "keda.sh/v1alpha1": "@kubernetes-models/keda/keda.sh/v1alpha1",
  "monitoring.coreos.com/v1": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1",
};

function errorOf(document) {
  const source = sources[document.apiVersion];
  const kind = source && require(source)[document.kind];
  if (!kind) return `unknown kind ${document.apiVersion} ${document.kind}`;
  try {
    new kind(document).validate();
    return null;
  } catch (error) {
    return error.message;
  }
}

const documents = JSON.parse(require("fs").readFileSync(0, "utf8"));
const found = documents.map((each) => ({ name: `${each.kind}/${each.metadata.name}`, error: errorOf(each) }));
console.log(JSON.stringify(found.filter((each) => each.error)));
