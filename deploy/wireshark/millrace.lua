-- Wireshark dissectors of what Millrace's switches put on the wire; docs/network/decoders.md says how to use them.
--   p4int     In-band Network Telemetry v2.1: MD and MX behind TCP, UDP, GRE and VXLAN-GPE
--   p4report  Telemetry Report v2.0, with the truncated packets and their INT
--   mrsum     Millrace's aggregation header, version 2
-- Layouts are those of dataplane/wire; tests/dataplane/wire/test_wireshark.py compares the two.
-- Runs with Lua 5.2 to 5.4, so it uses neither bit32 nor the operators of 5.3.

-- Named on the command line although it is among the personal plugins, too: once is enough.
if _G.millrace_is_loaded then return end
_G.millrace_is_loaded = true

local int = Proto("p4int", "In-band Network Telemetry")
local report = Proto("p4report", "Telemetry Report")
local sum = Proto("mrsum", "Millrace aggregation")

local FABRIC = 0x4d52 -- our INT domain (dataplane/wire/domain_metadata.py)
local TCP, UDP, GRE = 6, 17, 47
local IPV4, IPV6, VLAN, BRIDGED = 0x0800, 0x86dd, 0x8100, 0x6558
local NEXT_INT, VXLAN_PORT, VERSION = 0x82, 4789, 2

int.prefs.by_dscp = Pref.bool("Told by DSCP", true, "Packets behind TCP and UDP have INT if their DSCP says so")
int.prefs.dscp = Pref.uint("DSCP", 0x17, "int_domain.dscp of the controller's settings")
int.prefs.dscp_mask = Pref.uint("DSCP mask", 0x3f, "int_domain.dscp_mask: the bits of it that count")
int.prefs.udp_port = Pref.uint("UDP port", 0, "int_domain.udp_port; 0: none")
int.prefs.probe_marker = Pref.string("Probe marker", "", "int_domain.probe_marker, 16 hexadecimal digits; empty: none")
int.prefs.gre_protocol = Pref.uint("GRE protocol type", 0x88b5, "int_domain.gre_protocol")
int.prefs.vxlan_port = Pref.uint("VXLAN-GPE port", 4790, "UDP port of VXLAN-GPE")
report.prefs.port = Pref.uint("UDP port", 32766, "Where the collector listens")
sum.prefs.port = Pref.uint("UDP port", 19777, "Where switches add up")

-- Fields ------------------------------------------------------------------------------------------------------------

local INT_TYPES = { [1] = "MD", [2] = "Destination", [3] = "MX" }
local NEXT_PROTOCOLS = { [0] = "unchanged", [1] = "UDP payload", [2] = "new UDP header" }
local REPORT_TYPES = { [0] = "inner only", [1] = "INT", [2] = "IOAM" }
local INNER_TYPES = { [0] = "none", [1] = "TLV", [2] = "domain", [3] = "Ethernet", [4] = "IPv4", [5] = "IPv6" }
local TLV_TYPES = { [0] = "domain", [1] = "Ethernet", [2] = "IPv4", [3] = "IPv6" }
local DECISIONS = { [1] = "path of the flow", [2] = "path of the destination", [3] = "route" }
-- `make tables` writes the reasons from dataplane/wire/drop_reasons.py.
local DROP_REASONS = {
  [0] = "unknown", [1] = "parser_error", [2] = "unknown_ethertype", [3] = "bad_ipv4_checksum", [4] = "int_at_edge",
  [5] = "int_malformed", [6] = "ttl_expired", [7] = "no_route", [8] = "int_discard", [9] = "queue_full",
  [10] = "mtu_exceeded", [11] = "report_at_edge", [12] = "source_spoofed",
}
local KINDS = { [1] = "contribution", [2] = "result", [3] = "again", [4] = "refused", [5] = "pull" }
local OPERATIONS = { [1] = "sum", [2] = "max" }
local REASONS = { [0] = "none", [1] = "epoch", [2] = "mismatch" }

-- What each bit of instructions or RepMdBits stands for, from bit 0 on: name, what people read, bytes.
local METADATA = {
  { { "node_id", "Node id", 4 } },
  { { "ingress_interface", "Ingress interface", 2 }, { "egress_interface", "Egress interface", 2 } },
  { { "hop_latency", "Hop latency (ns)", 4 } },
  { { "queue_id", "Queue id", 1 }, { "queue_occupancy", "Queue occupancy (frames)", 3 } },
  { { "ingress_timestamp", "Ingress timestamp (ns)", 8 } },
  { { "egress_timestamp", "Egress timestamp (ns)", 8 } },
  { { "level2_ingress_interface", "Level 2 ingress interface", 4 },
    { "level2_egress_interface", "Level 2 egress interface", 4 } },
  { { "tx_utilisation", "TX utilisation (bytes a window)", 4 } },
  { { "buffer_id", "Buffer id", 1 }, { "buffer_occupancy", "Buffer occupancy (frames)", 3 } },
}

local UNSIGNED = {
  [8] = ProtoField.uint8, [16] = ProtoField.uint16, [24] = ProtoField.uint24, [32] = ProtoField.uint32,
  [64] = ProtoField.uint64,
}

-- Makes fields of {name, label, bits, options}; options: hex, values, mask. Zero bits: bytes.
local function add_fields(made, prefix, rows)
  for _, row in ipairs(rows) do
    local name, label, bits, options = row[1], row[2], row[3], row[4] or {}
    local base_of = options.hex and base.HEX or base.DEC
    if bits == 0 then
      made[name] = ProtoField.bytes(prefix .. "." .. name, label)
    else
      made[name] = UNSIGNED[bits](prefix .. "." .. name, label, base_of, options.values, options.mask)
    end
  end
  return made
end

-- The fields of one node's metadata.
local function metadata_fields(prefix)
  local rows = {
    { "reserved", "Reserved", 32, { hex = true } },
    { "checksum_complement", "Checksum complement", 32, { hex = true } },
    { "drop_queue_id", "Queue id of the drop", 8 },
    { "drop_reason", "Drop reason", 8, { values = DROP_REASONS } },
    { "domain", "Domain metadata", 0 },
    { "source_number", "Number of the packet at its source", 32 },
    { "decision", "Forwarded by", 8, { values = DECISIONS } },
    { "ttl", "TTL as it left", 8 },
    { "job", "Job", 16 }, { "last_child", "Last child", 8 }, { "leaf", "Leaf's sum", 8, { mask = 0x80 } },
    { "item", "Item", 32 }, { "wait", "Wait (us)", 32 }, { "repeated", "Repeated", 16 }, { "ahead", "Ahead", 16 },
  }
  for _, group in ipairs(METADATA) do
    for _, field in ipairs(group) do rows[#rows + 1] = { field[1], field[2], 8 * field[3] } end
  end
  return add_fields({}, prefix, rows)
end

local function registered(proto, ...)
  local all = {}
  for _, made in ipairs({ ... }) do
    for _, field in pairs(made) do all[#all + 1] = field end
  end
  proto.fields = all
end

local I = add_fields({ hop = ProtoField.none("p4int.hop", "Hop") }, "p4int", {
  { "probe_marker", "Probe marker", 64, { hex = true } },
  { "type", "Type", 8, { values = INT_TYPES, mask = 0xf0 } },
  { "npt", "Next protocol type", 8, { values = NEXT_PROTOCOLS, mask = 0x0c } },
  { "inserted", "G: inserted, or plain VXLAN before", 8, { mask = 0x08 } },
  { "was_vxlan", "G: plain VXLAN before", 8, { mask = 0x80 } },
  { "length", "Length (words behind the shim)", 8 },
  { "original_dscp", "Original DSCP", 16, { mask = 0x00fc } },
  { "original_port", "Original UDP destination port", 16 },
  { "original_protocol", "Original IP protocol", 8 },
  { "next_protocol", "Next protocol", 16, { hex = true } },
  { "version", "Version", 8, { mask = 0xf0 } },
  { "discard", "D: discard at the sink", 8, { mask = 0x08 } },
  { "hops_exceeded", "E: hop count exceeded", 8, { mask = 0x04 } },
  { "mtu_exceeded", "M: MTU exceeded", 8, { mask = 0x02 } },
  { "hop_ml", "HopML (words a hop)", 8, { mask = 0x1f } },
  { "remaining_hops", "Remaining hops", 8 },
  { "instructions", "Instructions", 16, { hex = true } },
  { "domain_id", "Domain", 16, { hex = true } },
  { "domain_instructions", "Domain instructions", 16, { hex = true } },
  { "domain_flags", "Domain flags", 16, { hex = true } },
  { "source_number", "Number of the packet at its source", 32 },
  { "source_words", "Words of the source", 0 },
  { "destination", "Destination header", 0 },
})
local HOP = metadata_fields("p4int.hop")
registered(int, I, HOP)

local R = add_fields({
  individual = ProtoField.none("p4report.individual", "Report"),
  src = ProtoField.ipv4("p4report.flow.src", "Flow's source"),
  dst = ProtoField.ipv4("p4report.flow.dst", "Flow's destination"),
  src6 = ProtoField.ipv6("p4report.flow.src6", "Flow's source"),
  dst6 = ProtoField.ipv6("p4report.flow.dst6", "Flow's destination"),
}, "p4report", {
  { "version", "Version", 8, { mask = 0xf0 } },
  { "hw_id", "Hardware id", 16, { mask = 0x0fc0 } },
  { "sequence", "Sequence number", 32, { mask = 0x003fffff } },
  { "node_id", "Node id", 32 },
  { "type", "Report type", 8, { values = REPORT_TYPES, mask = 0xf0 } },
  { "inner_type", "Inner type", 8, { values = INNER_TYPES, mask = 0x0f } },
  { "length", "Length (words; 255: to the end)", 8 },
  { "metadata_length", "Metadata length (words)", 8 },
  { "dropped", "D: dropped", 8, { mask = 0x80 } },
  { "congested", "Q: congested queue", 8, { mask = 0x40 } },
  { "tracked", "F: tracked flow", 8, { mask = 0x20 } },
  { "intermediate", "I: intermediate", 8, { mask = 0x10 } },
  { "bits", "RepMdBits", 16, { hex = true } },
  { "domain_id", "Domain", 16, { hex = true } },
  { "domain_bits", "Domain metadata bits", 16, { hex = true } },
  { "domain_status", "Domain metadata status", 16, { hex = true } },
  { "tlv_type", "TLV", 8, { values = TLV_TYPES, mask = 0xf0 } },
  { "tlv_length", "Length (words)", 8 },
  { "template", "Template", 16, { hex = true } },
  { "inner", "Inner contents", 0 },
})
add_fields(R, "p4report.flow", {
  { "protocol", "Flow's protocol", 8 }, { "src_port", "Flow's source port", 16 },
  { "dst_port", "Flow's destination port", 16 },
})
local OWN = metadata_fields("p4report.own")
registered(report, R, OWN)

local S = add_fields({}, "mrsum", {
  { "version", "Version", 8, { mask = 0xf0 } },
  { "kind", "Kind", 8, { values = KINDS, mask = 0x0f } },
  { "saturated", "Saturated", 8, { mask = 0x01 } },
  { "congested", "Congested", 8, { mask = 0x02 } },
  { "final", "Final", 8, { mask = 0x04 } },
  { "job", "Job", 16 },
  { "item", "Item", 32 },
  { "epoch", "Epoch", 16 },
  { "workers", "Workers", 16 },
  { "operation", "Operation", 8, { values = OPERATIONS, mask = 0xf0 } },
  { "quarters", "Quarters (256 bytes each)", 8, { mask = 0x0f } },
  { "reason", "Reason", 8, { values = REASONS } },
  { "nonce", "Nonce", 64, { hex = true } },
  { "check", "Check", 64, { hex = true } },
  { "values", "Values", 0 },
})
registered(sum, S)

local malformed = {}
for name, proto in pairs({ int = int, report = report, sum = sum }) do
  local filter = proto.name:lower() .. ".malformed"
  malformed[name] = ProtoExpert.new(filter, "Malformed or cut short", expert.group.MALFORMED, expert.severity.ERROR)
  proto.experts = { malformed[name] }
end

-- Reading -----------------------------------------------------------------------------------------------------------

local function complain(tree, kind, text, ...)
  tree:add_proto_expert_info(malformed[kind], string.format(text, ...))
end

-- Returns whether `size` bytes stand between `at` and `stop`, and says in the tree if not.
local function has_room(tree, kind, what, at, size, stop)
  if at + size <= stop then return true end
  complain(tree, kind, "%s: needs %d bytes, %d left", what, size, math.max(stop - at, 0))
  return false
end

local function bit_of(number, bit) return math.floor(number / 2 ^ (15 - bit)) % 2 == 1 end

-- Adds {field, offset, bytes} of a header at `at`.
local function add_rows(tree, tvb, at, rows)
  for _, row in ipairs(rows) do tree:add(row[1], tvb(at + row[2], row[3])) end
end

-- One node's metadata ---------------------------------------------------------------------------------------------

local function baseline_bytes(bits)
  local total = 0
  for bit = 0, 15 do
    if bit_of(bits, bit) then total = total + ((bit == 4 or bit == 5 or bit == 6) and 8 or 4) end
  end
  return total
end

local function is_all_ones(range)
  for i = 0, range:len() - 1 do
    if range(i, 1):uint() ~= 0xff then return false end
  end
  return true
end

local function add_value(tree, field, range)
  local item = tree:add(field, range)
  if is_all_ones(range) then item:append_text(" (not available)") end
end

-- Words of our domain's metadata by bit; bit 0, the source's number, stands in a report as the others do.
local function add_domain(tree, fields, tvb, at, stop, bits)
  if bit_of(bits, 0) and at + 4 <= stop then
    tree:add(fields.source_number, tvb(at, 4))
    at = at + 4
  end
  if bit_of(bits, 1) and at + 4 <= stop then
    add_rows(tree, tvb, at, { { fields.decision, 0, 1 }, { fields.ttl, 1, 1 } })
    at = at + 4
  end
  if bit_of(bits, 2) and at + 16 <= stop then
    add_rows(tree, tvb, at, { { fields.job, 0, 2 }, { fields.last_child, 2, 1 }, { fields.leaf, 3, 1 },
      { fields.item, 4, 4 }, { fields.wait, 8, 4 }, { fields.repeated, 12, 2 }, { fields.ahead, 14, 2 } })
  end
end

-- Adds a node's metadata, which is at least as long as `bits` ask for; what they do not explain is the domain's.
local function add_metadata(tree, fields, tvb, at, stop, bits, domain_id, domain_bits, in_report)
  for bit, group in ipairs(METADATA) do
    for _, field in ipairs(bit_of(bits, bit - 1) and group or {}) do
      add_value(tree, fields[field[1]], tvb(at, field[3]))
      at = at + field[3]
    end
  end
  for bit = 9, 14 do
    if bit_of(bits, bit) then
      add_value(tree, fields.reserved, tvb(at, 4))
      at = at + 4
    end
  end
  if bit_of(bits, 15) and in_report then
    add_value(tree, fields.drop_queue_id, tvb(at, 1))
    add_value(tree, fields.drop_reason, tvb(at + 1, 1))
    at = at + 4
  elseif bit_of(bits, 15) then
    stop = stop - 4
    add_value(tree, fields.checksum_complement, tvb(stop, 4))
  end
  if at < stop then
    tree:add(fields.domain, tvb(at, stop - at))
    if domain_id == FABRIC then add_domain(tree, fields, tvb, at, stop, domain_bits) end
  end
end

-- INT ---------------------------------------------------------------------------------------------------------------

-- Returns how many hops a stack of `size` bytes has and how many bytes the source wrote besides; nil if none fits.
local function shape_of_stack(size, hop, domain_id, domain_bits)
  local source = 0
  if domain_id == FABRIC and bit_of(domain_bits, 0) and size >= 4 and (size - 4) % hop == 0 then
    source = 4
  elseif domain_bits ~= 0 then
    source = size % hop
  end
  if size % 4 ~= 0 or (size - source) % hop ~= 0 then return nil end
  return math.floor((size - source) / hop), source
end

local function add_source(tree, tvb, at, stop, domain_id, domain_bits)
  local is_number = domain_id == FABRIC and bit_of(domain_bits, 0) and stop - at == 4
  tree:add(is_number and I.source_number or I.source_words, tvb(at, stop - at))
end

local function add_stack(tree, tvb, at, stop, md)
  local size = stop - at
  if size == 0 then return end
  if md.hop == 0 and md.domain_bits ~= 0 and size % 4 == 0 then
    return add_source(tree, tvb, at, stop, md.domain_id, md.domain_bits)
  end
  if md.hop == 0 then return complain(tree, "int", "INT-MD: HopML is 0, but the stack has %d bytes", size) end
  local count, source = shape_of_stack(size, md.hop, md.domain_id, md.domain_bits)
  if count == nil or (count > 0 and baseline_bytes(md.bits) > md.hop) then
    return complain(tree, "int", "INT-MD: hops of %d bytes do not explain a stack of %d with instructions 0x%04x",
      md.hop, size, md.bits)
  end
  -- The source's number comes first among our domain's bits, but stands behind the source's hop.
  local hop_bits = md.domain_bits % 0x8000
  for i = 1, count do
    local hop = tree:add(I.hop, tvb(at, md.hop))
    hop:append_text(string.format(" %d of %d", count - i + 1, count))
    if bit_of(md.bits, 0) then hop:append_text(string.format(", node %d", tvb(at, 4):uint())) end
    add_metadata(hop, HOP, tvb, at, at + md.hop, md.bits, md.domain_id, hop_bits, false)
    at = at + md.hop
  end
  if source > 0 then add_source(tree, tvb, at, stop, md.domain_id, md.domain_bits) end
  return count
end

-- Adds the INT-MD or MX header and what follows up to `stop`; returns words for the packet list.
local function add_header(tree, tvb, at, stop, kind)
  if kind == 2 then
    if stop > at then tree:add(I.destination, tvb(at, stop - at)) end
    return "INT-Destination"
  end
  local name = "INT-" .. INT_TYPES[kind]
  if not has_room(tree, "int", name, at, 12, stop) then return name .. ", malformed" end
  add_rows(tree, tvb, at, { { I.version, 0, 1 }, { I.discard, 0, 1 } })
  if tvb(at, 1):bitfield(0, 4) ~= VERSION then
    complain(tree, "int", "%s: version is %d, not %d", name, tvb(at, 1):bitfield(0, 4), VERSION)
    return name .. ", malformed"
  end
  if kind == 1 then
    add_rows(tree, tvb, at, { { I.hops_exceeded, 0, 1 }, { I.mtu_exceeded, 0, 1 }, { I.hop_ml, 2, 1 },
      { I.remaining_hops, 3, 1 } })
  end
  add_rows(tree, tvb, at, { { I.instructions, 4, 2 }, { I.domain_id, 6, 2 }, { I.domain_instructions, 8, 2 },
    { I.domain_flags, 10, 2 } })
  local domain_id, domain_bits = tvb(at + 6, 2):uint(), tvb(at + 8, 2):uint()
  if kind == 3 then
    if stop > at + 12 then add_source(tree, tvb, at + 12, stop, domain_id, domain_bits) end
    return name
  end
  local md = { hop = 4 * tvb(at + 2, 1):bitfield(3, 5), bits = tvb(at + 4, 2):uint(), domain_id = domain_id,
    domain_bits = domain_bits }
  local count = add_stack(tree, tvb, at + 12, stop, md)
  return count and string.format("%s, %d hops", name, count) or name
end

-- Rows of each shim behind type and length.
local SHIMS = {
  transport = function(tvb, at)
    local npt = tvb(at, 1):bitfield(4, 2)
    local kept = ({ [0] = { I.original_dscp, 2, 2 }, { I.original_port, 2, 2 }, { I.original_protocol, 3, 1 } })[npt]
    return { { I.npt, 0, 1 }, kept }
  end,
  gre = function() return { { I.inserted, 0, 1 }, { I.next_protocol, 2, 2 } } end,
  vxlan = function() return { { I.was_vxlan, 2, 1 }, { I.next_protocol, 3, 1 } } end,
}

-- Adds a shim and its header; returns where they end, nil where that is not known, and words for the packet list.
local function add_shim(tree, tvb, at, stop, encapsulation)
  if not has_room(tree, "int", "INT shim", at, 4, stop) then return nil, "INT, cut" end
  local kind, size = tvb(at, 1):bitfield(0, 4), 4 * tvb(at + 1, 1):uint()
  add_rows(tree, tvb, at, { { I.type, 0, 1 }, { I.length, 1, 1 } })
  add_rows(tree, tvb, at, SHIMS[encapsulation](tvb, at))
  if INT_TYPES[kind] == nil or (encapsulation == "transport" and tvb(at, 1):bitfield(4, 2) == 3) then
    complain(tree, "int", "INT shim: type and NPT byte 0x%02x is not defined", tvb(at, 1):uint())
    return nil, "INT, malformed"
  end
  local whole = has_room(tree, "int", "INT shim", at + 4, size, stop)
  local text = add_header(tree, tvb, at + 4, math.min(stop, at + 4 + size), kind)
  return whole and at + 4 + size or nil, text
end

-- Packets -----------------------------------------------------------------------------------------------------------

local EXTENSIONS = { [0] = true, [43] = true, [44] = true, [60] = true }

local function read_ipv4(tvb, at, stop)
  if at + 20 > stop then return nil end
  local size, total = 4 * tvb(at, 1):bitfield(4, 4), tvb(at + 2, 2):uint()
  if size < 20 or at + size > stop then return nil end
  if total >= size then stop = math.min(stop, at + total) end
  return { src = tvb(at + 12, 4), dst = tvb(at + 16, 4), dscp = tvb(at + 1, 1):bitfield(0, 6),
    protocol = tvb(at + 9, 1), has_ports = tvb(at + 6, 2):bitfield(3, 13) == 0, at = at + size, stop = stop }
end

local function read_ipv6(tvb, at, stop)
  if at + 40 > stop then return nil end
  local ip = { src = tvb(at + 8, 16), dst = tvb(at + 24, 16), is_v6 = true, dscp = tvb(at, 2):bitfield(4, 6),
    protocol = tvb(at + 6, 1), has_ports = true, at = at + 40 }
  local length = tvb(at + 4, 2):uint()
  ip.stop = length > 0 and math.min(stop, at + 40 + length) or stop
  while EXTENSIONS[ip.protocol:uint()] do
    if ip.at + 8 > ip.stop then return nil end
    local is_fragment = ip.protocol:uint() == 44
    if is_fragment and tvb(ip.at + 2, 2):bitfield(0, 13) ~= 0 then ip.has_ports = false end
    ip.protocol = tvb(ip.at, 1)
    ip.at = ip.at + (is_fragment and 8 or 8 * (tvb(ip.at + 1, 1):uint() + 1))
  end
  return ip
end

-- Reads source and destination port, and where the payload begins; false where the header is cut.
local function read_ports(tvb, ip)
  local protocol = ip.protocol:uint()
  if not ip.has_ports or (protocol ~= TCP and protocol ~= UDP) then return protocol == GRE end
  if ip.at + (protocol == TCP and 20 or 8) > ip.stop then return false end
  ip.src_port, ip.dst_port = tvb(ip.at, 2), tvb(ip.at + 2, 2)
  local size = protocol == TCP and 4 * tvb(ip.at + 12, 1):bitfield(0, 4) or 8
  ip.payload_at = ip.at + size
  return size >= (protocol == TCP and 20 or 8) and ip.payload_at <= ip.stop
end

local function read_ip(tvb, at, stop)
  if at >= stop then return nil end
  local version = tvb(at, 1):bitfield(0, 4)
  local ip = version == 4 and read_ipv4(tvb, at, stop) or version == 6 and read_ipv6(tvb, at, stop) or nil
  if ip then ip.is_whole = read_ports(tvb, ip) end
  return ip
end

local function read_ethernet(tvb, at, stop)
  if at + 14 > stop then return nil end
  local ether_type = tvb(at + 12, 2):uint()
  at = at + 14
  if ether_type == VLAN then
    if at + 4 > stop then return nil end
    ether_type, at = tvb(at + 2, 2):uint(), at + 4
  end
  return (ether_type == IPV4 or ether_type == IPV6) and read_ip(tvb, at, stop) or nil
end

local function marks_dscp(dscp)
  if not int.prefs.by_dscp then return false end
  for bit = 0, 5 do
    local counts = math.floor(int.prefs.dscp_mask / 2 ^ bit) % 2 == 1
    if counts and math.floor(dscp / 2 ^ bit) % 2 ~= math.floor(int.prefs.dscp / 2 ^ bit) % 2 then return false end
  end
  return true
end

local function has_marker(tvb, at, stop)
  local marker = int.prefs.probe_marker:lower():gsub("^0x", "")
  return #marker == 16 and at + 8 <= stop and tvb(at, 8):bytes():tohex(true) == marker
end

local function find_in_gre(tvb, ip)
  if ip.at + 4 > ip.stop or tvb(ip.at + 2, 2):uint() ~= int.prefs.gre_protocol then return nil end
  if tvb(ip.at, 2):bitfield(1, 1) == 1 or tvb(ip.at, 2):bitfield(13, 3) ~= 0 then return nil end
  local at = ip.at + 4
  for _, bit in ipairs({ 0, 2, 3 }) do at = at + 4 * tvb(ip.at, 1):bitfield(bit, 1) end
  if at <= ip.stop then return at, "gre" end
end

-- Returns where INT begins and behind what; nothing where a packet has no mark.
local function find_int(tvb, ip)
  local protocol = ip.protocol:uint()
  if not ip.has_ports or not ip.is_whole then return nil end
  if protocol == GRE then return find_in_gre(tvb, ip) end
  local at, port = ip.payload_at, protocol == UDP and ip.dst_port:uint() or 0
  if port ~= 0 and port == int.prefs.udp_port then return at, "transport" end
  if has_marker(tvb, at, ip.stop) then return at, "marker" end
  if marks_dscp(ip.dscp) then return at, "transport" end
  if port ~= int.prefs.vxlan_port or at + 8 > ip.stop then return nil end
  local has_int = tvb(at, 1):bitfield(5, 1) == 1 and tvb(at + 3, 1):uint() == NEXT_INT
  if has_int then return at + 8, "vxlan" end
end

-- Adds all INT that begins at `at`; returns where it ends, nil where that is not known, words, and its last shim.
local function add_int(tree, tvb, at, stop, encapsulation)
  local start = at
  tree = tree:add(int, tvb(at, stop - at))
  if encapsulation == "marker" then
    tree:add(I.probe_marker, tvb(at, 8))
    at, encapsulation = at + 8, "transport"
  end
  local shim_at = at
  local stop_at, text = add_shim(tree, tvb, at, stop, encapsulation)
  while encapsulation == "vxlan" and stop_at and tvb(shim_at + 3, 1):uint() == NEXT_INT do
    shim_at = stop_at
    stop_at = add_shim(tree, tvb, shim_at, stop, encapsulation)
  end
  if stop_at then tree:set_len(stop_at - start) end
  return stop_at, text, shim_at
end

-- Returns the packet as its source sent it: what INT was put in front of, and the port that it changed.
local function original(tvb, ip, shim_at, stop_at, encapsulation)
  if encapsulation == "gre" then
    local next_protocol = tvb(shim_at + 2, 2):uint()
    if tvb(shim_at, 1):bitfield(4, 1) == 0 then return ip end
    if next_protocol == BRIDGED then return read_ethernet(tvb, stop_at, ip.stop) or ip end
    return read_ip(tvb, stop_at, ip.stop) or ip
  elseif encapsulation == "vxlan" then
    if tvb(shim_at + 2, 1):bitfield(0, 1) == 1 then ip.dst_port_number = VXLAN_PORT end
    return ip
  end
  local npt = tvb(shim_at, 1):bitfield(4, 2)
  if npt == 1 then ip.dst_port = tvb(shim_at + 2, 2) end
  if npt ~= 2 then return ip end
  local protocol = tvb(shim_at + 3, 1):uint()
  if protocol == 4 or protocol == 41 then return read_ip(tvb, stop_at, ip.stop) or ip end
  ip.protocol, ip.at, ip.src_port, ip.dst_port = tvb(shim_at + 3, 1), stop_at, nil, nil
  ip.is_whole = read_ports(tvb, ip)
  return ip
end

-- A postdissector: the mark is in the IP header, the INT wherever another dissector saw payload.
local frame_type = Field.new("frame.encap_type")
local ETHERNET, RAW_IP = 1, 7

function int.dissector(tvb, pinfo, tree)
  local link = frame_type()
  local read = link and ({ [ETHERNET] = read_ethernet, [RAW_IP] = read_ip })[link.value]
  local ip = read and read(tvb, 0, tvb:len())
  if not ip then return end
  local at, encapsulation = find_int(tvb, ip)
  if not at then return end
  local _, text = add_int(tree, tvb, at, ip.stop, encapsulation)
  pinfo.cols.info:append(" [" .. text .. "]")
end

register_postdissector(int)

-- Telemetry reports -------------------------------------------------------------------------------------------------

local function add_flow(tree, tvb, ip)
  tree:add(ip.is_v6 and R.src6 or R.src, ip.src)
  tree:add(ip.is_v6 and R.dst6 or R.dst, ip.dst)
  tree:add(R.protocol, ip.protocol)
  if not ip.src_port then return end
  tree:add(R.src_port, ip.src_port)
  if ip.dst_port_number then tree:add(R.dst_port, ip.dst_port, ip.dst_port_number)
  else tree:add(R.dst_port, ip.dst_port) end
end

-- Adds a truncated packet: its bytes, its INT, and whose flow it is.
local function add_inner(tree, tvb, at, stop, read)
  if at == stop then return end
  tree:add(R.inner, tvb(at, stop - at))
  local ip = read and read(tvb, at, stop)
  if not ip then
    if read then complain(tree, "report", "inner packet: no whole IP header") end
    return
  end
  local int_at, encapsulation = find_int(tvb, ip)
  if int_at then
    local stop_at, _, shim_at = add_int(tree, tvb, int_at, ip.stop, encapsulation)
    if stop_at then ip = original(tvb, ip, shim_at, stop_at, encapsulation) end
  end
  local protocol = ip.protocol:uint()
  if ip.has_ports and not ip.is_whole and (protocol == TCP or protocol == UDP) then
    complain(tree, "report", "inner packet: its L4 header is cut")
  end
  add_flow(tree, tvb, ip)
end

local function add_tlvs(tree, tvb, at, stop)
  while at < stop do
    if not has_room(tree, "report", "report TLV", at, 4, stop) then return end
    local kind, size = tvb(at, 1):bitfield(0, 4), 4 * tvb(at + 1, 1):uint()
    add_rows(tree, tvb, at, { { R.tlv_type, 0, 1 }, { R.tlv_length, 1, 1 }, { R.template, 2, 2 } })
    if not has_room(tree, "report", "report TLV", at + 4, size, stop) then return end
    add_inner(tree, tvb, at + 4, at + 4 + size, ({ read_ethernet, read_ip, read_ip })[kind])
    at = at + 4 + size
  end
end

-- Adds INT's main contents; returns where the inner contents begin, nil where that is not known.
local function add_main(tree, tvb, at, stop, metadata_words)
  if not has_room(tree, "report", "INT report", at, 8, stop) then return nil end
  add_rows(tree, tvb, at, { { R.bits, 0, 2 }, { R.domain_id, 2, 2 }, { R.domain_bits, 4, 2 },
    { R.domain_status, 6, 2 } })
  local bits, size = tvb(at, 2):uint(), 4 * metadata_words
  if not has_room(tree, "report", "metadata", at + 8, size, stop) then return nil end
  if baseline_bytes(bits) > size then
    complain(tree, "report", "metadata: %d bytes are fewer than RepMdBits 0x%04x ask for", size, bits)
    return nil
  end
  local domain_id, domain_bits = tvb(at + 2, 2):uint(), tvb(at + 4, 2):uint()
  add_metadata(tree, OWN, tvb, at + 8, at + 8 + size, bits, domain_id, domain_bits, true)
  return at + 8 + size
end

local FLAGS = { "dropped", "congested", "tracked", "intermediate" }

-- Adds the individual report from `at` to `stop`, header included; returns words for the packet list.
local function add_individual(tree, tvb, at, stop)
  local said = {}
  for i, flag in ipairs(FLAGS) do
    tree:add(R[flag], tvb(at + 3, 1))
    if tvb(at + 3, 1):bitfield(i - 1, 1) == 1 then said[#said + 1] = flag end
  end
  local kind, inner_type, inner_at = tvb(at, 1):bitfield(0, 4), tvb(at, 1):bitfield(4, 4), at + 4
  if kind == 1 then inner_at = add_main(tree, tvb, inner_at, stop, tvb(at + 2, 1):uint()) end
  if inner_at and inner_type == 1 and kind ~= 2 then
    add_tlvs(tree, tvb, inner_at, stop)
  elseif inner_at then
    local read = ({ [3] = read_ethernet, [4] = read_ip, [5] = read_ip })[inner_type]
    add_inner(tree, tvb, inner_at, stop, kind ~= 2 and read or nil)
  end
  return table.concat(said, "+")
end

local function add_individuals(tree, tvb)
  local at, stop, said = 8, tvb:len(), {}
  repeat
    if not has_room(tree, "report", "individual report", at, 4, stop) then break end
    local words = tvb(at + 1, 1):uint()
    local wanted = words == 0xff and math.max(stop - at - 4, 0) or 4 * words
    local last = math.min(stop, at + 4 + wanted)
    local item = tree:add(R.individual, tvb(at, last - at))
    add_rows(item, tvb, at, { { R.type, 0, 1 }, { R.inner_type, 0, 1 }, { R.length, 1, 1 },
      { R.metadata_length, 2, 1 } })
    has_room(item, "report", "individual report", at + 4, wanted, stop)
    -- A report of a reserved type says where it ends, and nothing else.
    if REPORT_TYPES[tvb(at, 1):bitfield(0, 4)] and INNER_TYPES[tvb(at, 1):bitfield(4, 4)] then
      said[#said + 1] = add_individual(item, tvb, at, last)
    end
    at = last
  until at >= stop
  return table.concat(said, ", ")
end

function report.dissector(tvb, pinfo, tree)
  pinfo.cols.protocol = "INT report"
  tree = tree:add(report, tvb())
  if not has_room(tree, "report", "report group", 0, 8, tvb:len()) then return tvb:len() end
  add_rows(tree, tvb, 0, { { R.version, 0, 1 }, { R.hw_id, 0, 2 }, { R.sequence, 0, 4 }, { R.node_id, 4, 4 } })
  if tvb(0, 1):bitfield(0, 4) ~= VERSION then
    complain(tree, "report", "report group: version is %d, not %d", tvb(0, 1):bitfield(0, 4), VERSION)
    return tvb:len()
  end
  local said = add_individuals(tree, tvb)
  pinfo.cols.info = string.format("node %d, report %d: %s", tvb(4, 4):uint(), tvb(0, 4):bitfield(10, 22), said)
  return tvb:len()
end

-- Aggregation -------------------------------------------------------------------------------------------------------

function sum.dissector(tvb, pinfo, tree)
  pinfo.cols.protocol = "mrsum"
  tree = tree:add(sum, tvb())
  if not has_room(tree, "sum", "aggregation", 0, 32, tvb:len()) then return tvb:len() end
  add_rows(tree, tvb, 0, {
    { S.version, 0, 1 }, { S.kind, 0, 1 }, { S.saturated, 1, 1 }, { S.congested, 1, 1 }, { S.final, 1, 1 },
    { S.job, 2, 2 }, { S.item, 4, 4 }, { S.epoch, 8, 2 }, { S.workers, 10, 2 }, { S.operation, 12, 1 },
    { S.quarters, 12, 1 }, { S.reason, 13, 1 }, { S.nonce, 16, 8 }, { S.check, 24, 8 },
  })
  local kind, quarters = tvb(0, 1):bitfield(4, 4), tvb(12, 1):bitfield(4, 4)
  if tvb(0, 1):bitfield(0, 4) ~= VERSION or KINDS[kind] == nil or quarters > 4 then
    complain(tree, "sum", "aggregation: no header of version %d", VERSION)
    return tvb:len()
  end
  if has_room(tree, "sum", "values", 32, 256 * quarters, tvb:len()) and quarters > 0 then
    tree:add(S.values, tvb(32, 256 * quarters))
  end
  pinfo.cols.info = string.format("%s of job %d, item %d, %d workers", KINDS[kind], tvb(2, 2):uint(), tvb(4, 4):uint(),
    tvb(10, 2):uint())
  return tvb:len()
end

-- Ports -------------------------------------------------------------------------------------------------------------

local udp_ports = DissectorTable.get("udp.port")
for _, proto in ipairs({ report, sum }) do
  local port = proto.prefs.port
  udp_ports:add(port, proto)
  function proto.prefs_changed()
    if proto.prefs.port == port then return end
    udp_ports:remove(port, proto)
    port = proto.prefs.port
    udp_ports:add(port, proto)
  end
end
