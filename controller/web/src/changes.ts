// Changes that users make from the page, and what is asked before them.

import { change, get } from './api'

export async function acknowledge(event: string, text: string): Promise<void> {
  await change('POST', `/v1/view/events/${encodeURIComponent(event)}/note`, { text })
}

export async function withdrawNote(event: string): Promise<void> {
  await change('DELETE', `/v1/view/events/${encodeURIComponent(event)}/note`)
}

export interface RuleChanged {
  by: string
  at_ns: number
  /** The settings' rule of that name; null: they have none. */
  settings: string | null
}

export interface RuleRow {
  name: string
  text: string
  condition: string
  changed: RuleChanged | null
}

export interface RulesAnswer {
  version: string
  rules: RuleRow[]
  removed: { name: string; condition: string; changed: RuleChanged }[]
  figures: Record<string, string[]>
}

export interface CheckedRule {
  name: string
  condition: string
  now: { count: number; of: number; subjects: string[] } | null
}

export const rules = () => get<RulesAnswer>('/v1/view/rules')

export function checkRule(text: string, replaces: string): Promise<CheckedRule> {
  return change<CheckedRule>('POST', '/v1/view/rules/check', { text, replaces })
}

export function putRule(text: string, replaces: string, version: string): Promise<RulesAnswer> {
  return change<RulesAnswer>('PUT', '/v1/view/rules', { text, replaces, version })
}

export function removeRule(name: string, version: string): Promise<RulesAnswer> {
  return change<RulesAnswer>('DELETE', `/v1/view/rules?${new URLSearchParams({ name, version })}`)
}

export function restoreRule(name: string, version: string): Promise<RulesAnswer> {
  return change<RulesAnswer>('POST', `/v1/view/rules/restore?${new URLSearchParams({ name, version })}`)
}

/** A flow as questions name it: protocol and ports only if they are stated. */
export interface FlowName {
  src: string
  dst: string
  protocol?: number
  src_port?: number
  dst_port?: number
}

export async function pinFlow(flow: FlowName, path: string[]): Promise<void> {
  await change('POST', '/v1/view/pins', { ...flow, path })
}

export async function releaseFlow(flow: FlowName): Promise<void> {
  await change('POST', '/v1/view/pins/release', flow)
}

export interface ManifestStep {
  name: string
  action: 'create' | 'change' | 'leave'
  changes: string[]
}

export async function applyManifest(text: string, dry: boolean): Promise<ManifestStep[]> {
  return (await change<{ steps: ManifestStep[] }>('POST', '/v1/view/apply', { text, dry })).steps
}

/** A resource of the API; its revision, if given, must still be the newest. */
export async function removeResource(plural: string, name: string, revision?: number): Promise<void> {
  await change('DELETE', `/v1/${plural}/${encodeURIComponent(name)}`, undefined, revision === undefined ? {} : { 'if-match': String(revision) })
}

export async function createResource<T>(plural: string, resource: unknown): Promise<T> {
  return change<T>('POST', `/v1/${plural}`, resource)
}

/** What draining an element, or putting it back, does: `A->B` is a direction, `A<->B` a cable, a name a switch. */
export interface DrainEffect {
  drain: { element: string; since_ns: number; by: string; note: string } | null
  is_change: boolean
  moves: { text: string; old: string[]; new: string[]; reason: string }[]
  moves_of: number
  stays: { text: string; path: string[]; reason: string }[]
  stays_of: number
  others: number
  hosts: string[]
  before: { link: string | null; share: number }
  after: { link: string | null; share: number }
  revision: string
}

export function drainEffect(element: string, drained: boolean): Promise<DrainEffect> {
  return get<DrainEffect>(`/v1/view/drains/effect?${new URLSearchParams({ element, drained: String(drained) })}`)
}

export async function setDrained(element: string, drained: boolean, note: string, revision?: string): Promise<void> {
  await change('POST', '/v1/view/drains', { element, drained, note, ...(revision === undefined ? {} : { revision }) })
}
