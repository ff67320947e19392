// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/table.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent/web/words.h"

namespace headgate::cli {
namespace {

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }

constexpr std::string_view kGap = "  ";

}  // namespace

std::string paint(std::string_view text, Color color, bool enabled) {
  int code = 0;
  switch (color) {
    case Color::kNone: break;
    case Color::kBold: code = 1; break;
    case Color::kDim: code = 2; break;
    case Color::kRed: code = 31; break;
    case Color::kGreen: code = 32; break;
    case Color::kYellow: code = 33; break;
  }
  return enabled && code != 0 && !text.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text)
                                               : std::string(text);
}

std::string plain(std::string_view text) {
  std::string out = web::valid_utf8(text);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto byte = static_cast<unsigned char>(out[i]);
    if (byte == '\n' || byte == '\t') {
      out[i] = ' ';
    } else if (byte < 0x20 || byte == 0x7f) {
      out[i] = '?';
    } else if (byte == 0xc2 && static_cast<unsigned char>(out[i + 1]) < 0xa0) {
      // U+0080 to U+009F: control codes of eight bits, which some terminals obey.
      out.replace(i, 2, "?");
    }
  }
  return out;
}

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string cut(std::string_view text, std::size_t width) {
  if (width_of(text) <= width) {
    return std::string(text);
  }
  if (width == 0) {
    return {};
  }
  std::size_t end = 0;
  for (std::size_t characters = 0; end < text.size(); ++end) {
    if (starts_character(text[end]) && ++characters == width) {
      break;
    }
  }
  return std::string(text.substr(0, end)) + "…";
}

std::vector<bool> Table::shown(const std::vector<std::size_t>& widths, std::size_t width) const {
  std::vector<bool> shown(columns_.size(), true);
  if (width == 0) {
    return shown;
  }
  int last_to_leave = 0;
  for (const Column& column : columns_) {
    last_to_leave = std::max(last_to_leave, column.leaves);
  }
  for (int leaving = 1; leaving <= last_to_leave; ++leaving) {
    std::size_t wanted = std::min(widths.back(), kLastWidth);
    for (std::size_t i = 0; i + 1 < columns_.size(); ++i) {
      wanted += shown[i] ? widths[i] + kGap.size() : 0;
    }
    if (wanted <= width) {
      break;
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      shown[i] = shown[i] && columns_[i].leaves != leaving;
    }
  }
  return shown;
}

std::string Table::render(std::size_t width, bool color) const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) {
    widths.push_back(width_of(column.title));
  }
  std::vector<std::vector<Cell>> rows;
  rows.emplace_back();
  for (const Column& column : columns_) {
    rows.front().push_back({std::string(column.title), Color::kDim});
  }
  for (const auto& row : rows_) {
    rows.emplace_back();
    for (std::size_t i = 0; i < row.size(); ++i) {
      rows.back().push_back({plain(row[i].text), row[i].color});
      widths[i] = std::max(widths[i], width_of(rows.back()[i].text));
    }
  }
  const std::vector<bool> is_shown = shown(widths, width);
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    std::size_t used = 0;
    std::size_t blanks = 0;  // not written until something follows them
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!is_shown[i]) {
        continue;
      }
      const std::size_t room = widths[i] - width_of(row[i].text);
      if (columns_[i].right) {
        blanks += room;
      }
      const std::size_t before = used + blanks;
      const std::string text =
          width == 0 ? row[i].text : cut(row[i].text, width > before ? width - before : 0);
      if (!text.empty()) {
        line.append(blanks, ' ');
        line += paint(text, row[i].color, color);
        used += blanks + width_of(text);
        blanks = 0;
      }
      blanks += kGap.size() + (columns_[i].right ? 0 : room);
    }
    out += line + '\n';
  }
  return out;
}

}  // namespace headgate::cli
