// The address of what one sees: #/VIEW?link=A&to=B&at=MS. Everything in it is absolute.

export const VIEWS = ['now', 'map', 'why', 'traffic', 'jobs', 'compute', 'system'] as const
export type ViewName = (typeof VIEWS)[number]

export type Selection = { kind: 'link'; a: string; b: string } | { kind: 'node'; name: string } | null

export interface Route {
  view: ViewName
  selection: Selection
  /** Milliseconds since 1970; null is live. */
  at: number | null
  /** What a view adds: the flow of Why, the job of Jobs, the tab of Compute. */
  extra: Record<string, string>
}

const OWN = new Set(['link', 'to', 'node', 'at'])

/** Returns Now for an address that names no view; wrong parts are left out. */
export function parseRoute(hash: string): Route {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?', 2)
  const view = VIEWS.find((name) => name === path) ?? 'now'
  const params = new URLSearchParams(query)
  const [link, to, node] = [params.get('link'), params.get('to'), params.get('node')]
  let selection: Selection = null
  if (link !== null && to !== null) selection = { kind: 'link', a: link, b: to }
  else if (node !== null) selection = { kind: 'node', name: node }
  const at = Number(params.get('at'))
  const extra = Object.fromEntries([...params].filter(([name]) => !OWN.has(name)))
  return { view, selection, at: Number.isFinite(at) && at > 0 ? at : null, extra }
}

export function formatRoute(route: Route): string {
  const params = new URLSearchParams(route.extra)
  if (route.selection?.kind === 'link') {
    params.set('link', route.selection.a)
    params.set('to', route.selection.b)
  } else if (route.selection?.kind === 'node') params.set('node', route.selection.name)
  if (route.at !== null) params.set('at', String(Math.round(route.at)))
  const query = params.toString()
  return `#/${route.view}${query === '' ? '' : `?${query}`}`
}

/** The single-use code of `millrace up`'s address: a fragment that is no route. */
export function codeOf(hash: string): string | null {
  const fragment = hash.replace(/^#/, '')
  return fragment === '' || fragment.startsWith('/') ? null : fragment
}
