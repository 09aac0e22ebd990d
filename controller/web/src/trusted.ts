// Our Trusted Types policy: scripts of workers come from this origin alone.

interface ScriptUrls {
  createScriptURL(url: string): string
}

function sameOrigin(url: string): string {
  const absolute = new URL(url, document.baseURI)
  if (absolute.origin !== location.origin) throw new TypeError(`a script of another origin: ${absolute.origin}`)
  return absolute.href
}

const types = (globalThis as { trustedTypes?: { createPolicy(name: string, rules: ScriptUrls): ScriptUrls } }).trustedTypes
const policy: ScriptUrls = types?.createPolicy('millrace', { createScriptURL: sameOrigin }) ?? { createScriptURL: sameOrigin }

export function scriptUrl(url: string): string {
  return policy.createScriptURL(url)
}
